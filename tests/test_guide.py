"""The guide keeps its promises: the form of a chapter, and a proof or a source for each number."""

import json
import re
from collections.abc import Callable
from math import log
from pathlib import Path
from typing import Any

import pytest

from bertsmith.families import FAMILIES
from bertsmith.train.recipe import load_recipe

ROOT = Path(__file__).resolve().parent.parent
GUIDE = ROOT / "docs" / "understand"
CHAPTERS = sorted(set(GUIDE.glob("*.md")) - {GUIDE / "index.md", GUIDE / "glossary.md"})
BLOCK = re.compile(r"```(python|console)\n(.*?)```", re.DOTALL)
ASKED = re.compile(r"\*\*What\s+do\s+you\s+expect")
END = "## What to remember"
DRAWN = re.compile(  # pictures that show what was measured
    r"pictures/(step|bank|context|negation|pooling|learning-rate|warm-up|batch|masking-rate|loss|positions)\.svg"
)


def names(page: Path) -> str:
    return page.stem


def results(block: re.Match[str]) -> list[str]:
    """The lines that code or commands print."""
    lines = [line for line in block[2].splitlines() if line.strip()]
    if block[1] == "console":
        return [line for line in lines if not line.startswith(("$", "    --"))]
    if not any(line.startswith(">>>") for line in lines):
        return []  # a quotation of code
    return [line for line in lines if not line.startswith((">>>", "..."))]


@pytest.mark.parametrize("page", CHAPTERS, ids=names)
def test_form(page: Path) -> None:
    """A picture, then a question before each result; exercises that run; three lines at the end."""
    text = page.read_text("utf-8")
    opening, *_ = re.split(r"^## |^```", text, maxsplit=1, flags=re.MULTILINE)
    assert "![" in opening, "no picture at the beginning"
    lesson, _, rest = text.partition("## Exercises")
    for section in re.split(r"^## ", lesson, flags=re.MULTILINE):
        first = [block for block in BLOCK.finditer(section) if results(block)][:1]
        first += [*DRAWN.finditer(section)][:1]
        for result in first:
            assert ASKED.search(section[: result.start()]), section[:60]
    exercises = re.findall(r"<details><summary>(\d)\. .*?</summary>(.*?)</details>", rest, re.S)
    assert [number for number, _ in exercises] == ["1", "2", "3"]
    for number, solution in exercises:
        assert any(results(block) for block in BLOCK.finditer(solution)), f"exercise {number}"
    assert re.findall(r"^(\d)\. ", rest.partition(END)[2], re.MULTILINE) == ["1", "2", "3"]
    assert "<!-- explorer: " in rest


def stored(name: str) -> Any:
    """A result of benchmarks/."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))


def size(name: str) -> Any:
    """The config of a published size."""
    family = next(family for family in FAMILIES.values() if name in family.sizes)
    return family.config(family.sizes[name])


def page_says(name: str, *parts: str) -> Callable[[], bool]:
    """A page that describes a measurement has all of these."""
    return lambda: all(part in (ROOT / "docs" / f"{name}.md").read_text("utf-8") for part in parts)


def demo_row(start: str, *scores: int) -> Callable[[], bool]:
    """The last two columns of a row of docs/demo.md, rounded."""
    text = (ROOT / "docs" / "demo.md").read_text("utf-8")
    row = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    found = [float(cell.strip(" %")) for cell in row.split("|")[-3:-1]]
    return lambda: [round(one) for one in found] == list(scores)


def rows(name: str) -> int:
    return len((ROOT / "docs/examples" / name).read_text("utf-8").strip().splitlines()) - 1


def curve(experiment: str, setting: str) -> dict[int, float]:
    """Held-out losses at steps, of benchmarks/training_step.py."""
    return dict(stored("training-step")[experiment][setting])


def in_file(name: str, *parts: str) -> Callable[[], bool]:
    return lambda: all(part in (ROOT / name).read_text("utf-8") for part in parts)


def masked(recipe: str) -> float:
    return load_recipe(recipe).masking.rate


COSTS, REVIEWS = stored("context")["cost"], stored("context")
NANO = stored("nanobert")
MEASURED = (  # of benchmarks/nanobert.py
    f"{NANO['minutes']:.0f} minutes of one core",
    f"{NANO['vocabulary_cpu_seconds']:.0f} seconds for the vocabulary",
    f"fell from {NANO['losses'][0]:.1f} to {NANO['losses'][-1]:.1f}",
    f"held-out documents was {NANO['masked_accuracy']:.1%}",
)
NOTHING = ""  # no claim about a model: an example, advice, hardware

# What no block of a page computes: a phrase with its numbers → a check, or the source it names.
CLAIMS: dict[str, dict[str, Callable[[], bool] | str]] = {
    "index": {
        "20% to 30% of the tokens": lambda: (
            {masked("bertsmith-small"), masked("bertsmith-small-replaced")} == {0.2, 0.3}
        ),
        "of 350 lines": lambda: len(NANOBERT.splitlines()) <= 350,
        "then 200 steps": lambda: max(curve("batch", "8 pairs")) == 200,
        "how 15% and 80/10/10": NOTHING,  # its chapter draws them
    },
    "attention": {"129 × n": lambda: 64 + 1 + 64 == 129},
    "distillation": {"77.0 on GLUE where BERT-base has 79.5": "Sanh et al. 2019"},
    "embeddings": {
        "768 numbers in BERT-base": lambda: size("bert-base-uncased").width == 768,
        "first 32 position": lambda: (
            30**2 < (GUIDE / "pictures/positions.svg").read_text("utf-8").count("<rect") < 33**2
        ),
        "reads 8,192 tokens": lambda: size("modernbert-base").max_length == 8192,
    },
    "encoder-or-decoder": {
        "300 reviews of SST-2, models trained on 600": lambda: (
            (REVIEWS["test"], REVIEWS["train"]) == (300, 600)
        ),
        "Xeon at 2.5 GHz": NOTHING,
        "60.7% | 0.04 ms": lambda: (
            (round(COSTS["TF-IDF"]["accuracy"], 3), round(COSTS["TF-IDF"]["cpu_ms"], 2))
            == (0.607, 0.04)
        ),
        "69.0% | 4.6 ms | 77 minutes | 40 MB": lambda: (
            max(REVIEWS["pooling"]["after"].values()) == 0.69
            and round(COSTS["bertsmith-classic"]["cpu_ms"], 1) == 4.6
            and round(COSTS["bertsmith-classic"]["megabytes"]) == 40
        ),
        "88.5%": page_says("bertsmith-small", "| 88.5 |"),
        "14.2 ms | 236 minutes | 95 MB": lambda: (
            round(COSTS["bertsmith-small"]["cpu_ms"], 1) == 14.2
            and round(COSTS["bertsmith-small"]["megabytes"]) == 95
        ),
        "93.5%": "Devlin et al. 2019",
        "438 MB": lambda: round(109_482_240 * 4 / 1e6) == 438,
        "at 16 bits": lambda: 2 * 8 == 16,
        "25 texts of each class": "Zhong et al.",
        "200 to 500 labelled": "Bucher and Martini (2024)",
        "send 400 labelled": NOTHING,
    },
    "fine-tuning": {
        "54 rows to learn from": lambda: rows("messages.csv") == 54,
        "same 54 rows": lambda: rows("messages.csv") == 54,
        "18 rows": lambda: rows("messages-test.csv") == 18,
        "15 of the 18 messages get the correct label (accuracy 0.8333": lambda: (
            round(15 / 18, 4) == 0.8333
        ),
        "20 passes over the same rows give 83%": page_says("classifier", "| 83% |", "20 "),
        "on 120 labelled sentences": page_says("demo", "from 120 sentences"),
        "75 and 108 held-out": page_says("demo", "| 75 | 108 |"),
        "44% | 39%": demo_row("F1 of the tagger from 120 sentences", 44, 39),
        "51% | 40%": demo_row("F1 from this BERT after it", 51, 40),
        "68% | 61%": demo_row("F1 from bertsmith-small", 68, 61),
        "90 seconds": page_says("demo", "in 90 s"),
        "19 minutes of": page_says("bertsmith-small", "19.2 "),
        "Beside 109 million": lambda: 109 <= 109_482_240 / 1e6 < 110,
    },
    "heads": {
        "head 0.2 puts all": page_says("heads", "`previous` of head 0.2 is"),
        "head 2.0 predicts the object of a\nverb with 72% accuracy (best fixed distance: 36%": (
            page_says("heads", "72% accuracy with head 2.0 (fixed distance: 36%)")
        ),
    },
    "limits": {
        "with 90% confidence": NOTHING,
        "512 tokens": lambda: size("bert-base-uncased").positions == 512,
        "confidence of a model is 95%, its accuracy 80%": NOTHING,
    },
    "masked-lm": {
        "at 30% a text": NOTHING,
        "masks 30%, the others 20%": lambda: (
            [masked(f"bertsmith-small{run}") for run in ("", "-replaced", "-pairs")]
            == [0.3, 0.2, 0.2]
        ),
        "bertsmith-small has 2.1": lambda: (
            round(stored("small3-model")["held_out"]["masked_15_loss"], 1) == 2.1
        ),
        "512 tokens long instead of 128": in_file(
            "src/bertsmith/recipes/bertsmith-small.toml", "length = 512", "length = 128"
        ),
        "100% `[MASK]`": NOTHING,
        "MNLI 84.2 for 80/10/10, 84.3 for 100%": "Devlin et al. 2019",
        "F1 94.9 and 94.0": "Devlin et al. 2019",
    },
    "meaning": {
        "35 × faster": page_says("distill", "(35 ×)"),
        "0.470, the encoder 0.749": page_says("distill", "0.470", "0.749"),
    },
    "nanobert": {
        "in 350 lines": lambda: len(NANOBERT.splitlines()) <= 350,
        "numbers of 16 bits become numbers of 32": in_file(
            "examples/nanobert.py", '"F16": torch.float16}', ".float()"
        ),
        **dict.fromkeys(MEASURED, NOTHING),
        "log(2) = 0.7": lambda: round(log(2), 1) == 0.7,
        "for 6.5 minutes": lambda: load_recipe("bertsmith-classic").train.minutes == 6.5,
    },
    "next-sentence": {
        "After 6.5 minutes": lambda: load_recipe("bertsmith-classic").train.minutes == 6.5,
        "97% of held-out pairs": page_says("bertsmith-classic", "accuracy | 97.0% |"),
        "(97% to\n98%": "Devlin et al. 2019",
        "SQuAD 1.1 F1 90.4 with BERT's pairs, 90.6": "Liu et al. 2019",
        "MNLI 84.0\nand 84.7": "Liu et al. 2019",
    },
    "pooling": {"training on 600": lambda: REVIEWS["train"] == 600},
    "training-step": {
        "of 350 lines": lambda: len(NANOBERT.splitlines()) <= 350,
        "two layers of 64": in_file("benchmarks/training_step.py", "width=64, layers=2"),
        "log(2,000) = 7.6, as all 2,000": lambda: (
            round(log(2000), 1) == round(curve("batch", "8 pairs")[0], 1) == 7.6
        ),
        "**Learning rate.** 0.002 works well": NOTHING,
        "0.0001 is slow: after 200 steps its loss is about that of 0.002 after 20": lambda: (
            abs(curve("learning rate", "0.0001")[200] - curve("learning rate", "0.002")[20]) < 0.1
        ),
        "With 0.03 the loss falls fastest at first and then\nstays above that of 0.002": lambda: (
            curve("learning rate", "0.03")[20] < curve("learning rate", "0.002")[20]
            and all(
                curve("learning rate", "0.03")[n] > curve("learning rate", "0.002")[n]
                for n in range(40, 201, 20)
            )
        ),
        "The rate (here 0.01)": in_file("benchmarks/training_step.py", "texts, 1e-2, steps"),
        "no difference in the end": lambda: (
            max(points[-1][1] for points in stored("training-step")["warm-up"].values())
            - min(points[-1][1] for points in stored("training-step")["warm-up"].values())
            < 0.05
        ),
        "24 layers": lambda: size("bert-large-uncased").layers == 24,
        "10,000 steps of warm-up": "Devlin et al. 2019",
        "a step of 32 pairs costs as much as 16 steps of 2": lambda: 16 * 2 == 32,
        "200 steps of 2 pairs, 12 of 32": lambda: (
            12 * 32 <= 200 * 2
            and curve("batch", "32 pairs")[20] > curve("batch", "2 pairs")[200] + 0.5
        ),
        "masked at 15%": in_file(
            "benchmarks/training_step.py", "nanobert.mask_tokens = masked_at(0.15)"
        ),
        "It has the lowest loss here": lambda: (
            min(stored("training-step")["masking rate"].items(), key=lambda one: one[1][-1][1])[0]
            == "80%"
        ),
        "trained with 30%, then with 20%": lambda: (
            (masked("bertsmith-small"), masked("bertsmith-small-replaced")) == (0.3, 0.2)
        ),
    },
    "variants": {
        "instead of 109 million": lambda: 109 <= 109_482_240 / 1e6 < 110,
        "projected to 768": lambda: size("albert-base-v2").width == 768,
        "kept 98.7% of its SST-2 accuracy at 1.9 ×": page_says("distill", "| 98.7% |", "1.94 ×"),
        "100% of the tokens instead of 15%": NOTHING,  # by its objective
        "BERT-base 109 million": lambda: 109 <= 109_482_240 / 1e6 < 110,
    },
    "word2vec-to-bert": {"300 English sentences": lambda: REVIEWS["sentences"] == 300},
}
NANOBERT = (ROOT / "examples" / "nanobert.py").read_text("utf-8")
NUMBER = re.compile(r"(?<![\w.#-])\d[\d,]*(?:\.\d+)?%?")


def plain(number: str) -> str:
    return re.sub(r"[,_]", "", number).rstrip("%")


def unproved(text: str, claims: dict[str, Any]) -> list[str]:
    """The numbers of a page's sentences that no block of it shows and no claim covers."""
    shown = {
        plain(one) for block in BLOCK.finditer(text) for one in re.findall(r"\d[\d,_.]*", block[2])
    }
    shown |= {f"{100 * float(one):g}" for one in shown if re.fullmatch(r"0\.\d+", one)}
    prose = re.sub(r"```.*?```|<!--.*?-->|^#.*?$", "", text, flags=re.DOTALL | re.MULTILINE)
    for phrase in sorted(claims, key=len, reverse=True):
        prose = prose.replace(phrase, " ")
    prose = re.sub(r"\[[^\]]*\]\([^)]*\)|`[^`]*`|^\d\. ", "", prose, flags=re.MULTILINE)
    prose = re.sub(r"<summary>\d\.", "", prose)
    found = []
    for sentence in re.split(r"(?<=[.?:])\s+|\n\n|</summary>", prose):
        if sentence.endswith("?") or ASKED.search(sentence):
            continue  # a question claims nothing
        for number in NUMBER.findall(sentence):
            small = plain(number).isdigit() and int(plain(number)) <= 12
            year = re.fullmatch(r"20[12]\d", plain(number))
            if not (small or year or plain(number) in shown):
                found.append(f"{number}: {sentence.strip()}")
    return found


@pytest.mark.parametrize("page", [GUIDE / "index.md", *CHAPTERS], ids=names)
def test_each_number_is_executed_checked_or_cited(page: Path) -> None:
    text = page.read_text("utf-8")
    claims = CLAIMS.get(page.stem, {})
    for phrase, proof in claims.items():
        assert phrase in text, phrase
        assert proof in text if isinstance(proof, str) else proof(), phrase
    assert unproved(text, claims) == []


def test_a_number_without_a_proof_is_seen() -> None:
    page = "It has 87% accuracy.\n\n```python\n>>> 40 + 2\n42\n\n```\nThat is 42. What about 99?"
    assert unproved(page, {}) == ["87%: It has 87% accuracy."]
    assert unproved(page, {"87% accuracy": NOTHING}) == []
