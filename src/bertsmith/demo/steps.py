"""The five steps of the demo: calls of the package's functions, and their results as plain values.

The results are what `--json` prints, what demo.json keeps and what the page shows.
"""

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.analysis.maps import Floats
from bertsmith.analysis.pages import senses_page
from bertsmith.analysis.senses import find, senses
from bertsmith.bert import Bert, load
from bertsmith.corpus import prepare
from bertsmith.demo.budget import Budget
from bertsmith.demo.initialization import LOOKS, write_initial_model
from bertsmith.demo.labels import DemoData, Sentence, split_items, write_table, write_tags
from bertsmith.explorer import film
from bertsmith.explorer.film import load_step
from bertsmith.files import write_text
from bertsmith.finetuning import FinetuningResult, Splits, finetune
from bertsmith.pages.runs.run import PretrainingRun, read_run
from bertsmith.tasks.evaluate import Evaluation
from bertsmith.tasks.read import read_data
from bertsmith.tasks.tagging.task import TASK as TAGGING
from bertsmith.tasks.task import Display
from bertsmith.tokenizer import Tokenizer, train
from bertsmith.train import pretrain
from bertsmith.train.flops import parameters_of
from bertsmith.train.pretraining import FILM
from bertsmith.train.recipe import Recipe, change, load_recipe
from bertsmith.train.state import Checkpoints

MODEL = "bertsmith-small"
MASKED = (
    "Berlin is the capital of [MASK].",
    "She played the [MASK] in an orchestra.",
    "She poured a cup of hot [MASK].",
    "He was born in 1950 and [MASK] in 2001.",
)
# Two sentences on one subject, without a telling word in common.
PAIRS = (
    ("The river rose after heavy rain.", "Storms flooded the valley."),
    ("She plays the violin.", "He writes songs for the piano."),
    ("The match ended in a draw.", "A striker scored two goals."),
    ("The company lost money.", "Investors sold their shares."),
)
TOP = 3  # guesses for each mask
FEWEST_ITEMS = 200  # to fine-tune on, however slow the machine
MOST_EPOCHS = 15  # however few the items
SHOWN = 4  # held-out items that are shown
LENGTHS = range(7, 18)  # and how many words they have
RATE = 1e-3  # a model of a minute knows little that a high rate could spoil
AMBIGUOUS = "test"  # "a test fails", and "test whether": a noun and a verb
FEWEST_OCCURRENCES = 20  # below which groups of a word say nothing
FURTHEST = max(map(abs, LOOKS))

Guesses = list[list[tuple[str, float]]]  # for each sentence the best tokens
Row = tuple[str, list[str]]  # a text, with its label or the tags of its words


def guesses_of(bert: Bert, sentences: Sequence[str]) -> Guesses:
    """The best tokens of a model for the mask of each sentence."""
    rows = bert.fill_mask(list(sentences), top=TOP)
    return [[(guess.token, guess.score) for guess in row[:TOP]] for row in rows]


def introduce() -> dict[str, Any]:
    """Step 1: the model that comes with the package fills masks and compares sentences."""
    bert = load(MODEL, device="cpu", progress=False)
    texts = [text for pair in PAIRS for text in pair]
    vectors = bert.embed(texts)
    # All vectors of a model that was never trained on sentences point much the same way.
    apart = vectors - vectors.mean(0)
    apart /= np.linalg.norm(apart, axis=1, keepdims=True)
    cosines = apart @ apart.T - 2 * np.eye(len(texts))  # none is its own neighbour
    return {
        "model": MODEL,
        "parameters": parameters_of(bert.model),
        "sentences": list(MASKED),
        "guesses": guesses_of(bert, MASKED),
        "near": [
            {
                "text": texts[place],
                "nearest": texts[int(cosines[place].argmax())],
                "cosine": float(cosines[place].max()),
            }
            for place in range(0, len(texts), 2)
        ],
    }


def train_vocabulary(out: Path, data: DemoData, budget: Budget) -> tuple[dict[str, Any], Tokenizer]:
    """Step 2: write the documents to `out`/text.txt and train `out`/vocabulary, in lower case."""
    text = "\n\n".join("\n".join(document.lines()) for document in data.documents) + "\n"
    write_text(out / "text.txt", text)
    tokenizer = train(
        [out / "text.txt"], "wordpiece", size=budget.vocabulary, max_length=2 * budget.length
    )
    tokenizer.save(out / "vocabulary")
    encoding = tokenizer.encode(*data.pair())
    pairs = zip(encoding.ids, encoding.segments, strict=True)
    return {
        "source": data.source,
        "documents": len(data.documents),
        "characters": len(text),
        "areas": dict(Counter(area for _, area in data.areas).most_common()),
        "vocabulary": tokenizer.size,
        "tokens": [
            {"token": tokenizer.token(id_), "segment": segment, "position": position}
            for position, (id_, segment) in enumerate(pairs)
        ],
    }, tokenizer


def recipe_for(start: Path, corpus: Path, budget: Budget) -> Recipe:
    """The recipe of the demo, recipe.toml, for a start, a corpus and a budget."""
    changes = [
        change("model.start", str(start)),
        change("data.corpus", str(corpus)),
        f"data.length={budget.length}",
        f"train.steps={budget.steps}",
        f"train.minutes={0.0 if budget.steps else budget.minutes}",
        f"train.batch_tokens={budget.batch_tokens}",
        f"train.micro_tokens={budget.batch_tokens}",
    ]
    return load_recipe(Path(__file__).with_name("recipe.toml"), changes)


def pretrain_model(
    out: Path, tokenizer: Tokenizer, budget: Budget, sentences: Sequence[str], show: str
) -> tuple[dict[str, Any], PretrainingRun, Bert]:
    """Step 3: pre-train on `out`/text.txt; write `out`/model and `out`/film.html.

    The guesses are those of the weights that the run kept for its film.
    """
    corpus, folder, start = out / "corpus", out / "pretraining", out / "beginning"
    prepare([out / "text.txt"], tokenizer, corpus, held_out=0.03, workers=0)
    write_initial_model(tokenizer, corpus, start, budget)
    summary = pretrain(recipe_for(start, corpus, budget), folder, show=show)
    if not summary["finished"]:
        raise KeyboardInterrupt
    page = film(folder, out / "film.html", name="The demo's BERT learns", examples=sentences)
    bert, kept = load(folder / "model", device="cpu", progress=False), Checkpoints(folder / FILM)
    guesses = []
    for step in page["steps"][:-1]:
        load_step(bert, kept, step)
        guesses.append(guesses_of(bert, sentences))
    run = read_run(folder)
    (folder / "model").replace(out / "model")
    for name in ("checkpoints", FILM):  # the run is over: nothing resumes from it
        shutil.rmtree(folder / name)
    bert = load(out / "model", device="cpu", progress=False)
    accuracy = run.last(f"{'held_out_' if budget.minutes else ''}masked_lm_accuracy")
    results = {
        **summary,
        "model": str(out / "model"),
        "layers": budget.layers,
        "parameters": run.parameters,
        "accuracy": accuracy or run.last("masked_lm_accuracy"),
        "sentences": list(sentences),
        "guesses_after": page["steps"],
        "guesses": [*guesses, guesses_of(bert, sentences)],
        "longer": guesses_of(load(MODEL, device="cpu", progress=False), sentences),
    }
    return results, run, bert


def affordable(
    texts: Sequence[str], tokenizer: Tokenizer, tokens: float, budget: Budget
) -> tuple[int, int]:
    """Return the number of texts and epochs that a budget of tokens allows."""
    some = texts[:FEWEST_ITEMS]
    each = sum(map(len, tokenizer.encode_ids(some, special=True))) / len(some)
    count = int(tokens / (budget.epochs * each))
    count = min(len(texts), budget.most_items, max(FEWEST_ITEMS, count))
    return count, max(budget.epochs, min(MOST_EPOCHS, int(tokens / (each * count))))


@dataclass(frozen=True)
class DemoTuning:
    """Step 4: fine-tunes models in the folder of a demo."""

    out: Path
    tokenizer: Tokenizer
    speed: float  # tokens a second of pre-training, from which time is estimated
    budget: Budget
    progress: bool

    def classifier(self, items: Sequence[tuple[str, str]]) -> tuple[dict[str, Any], list[Display]]:
        """Fine-tune on `out`/areas and write `out`/classifier; also return examples to show."""
        rows = [(text, [label]) for text, label in items]
        tokens = self.speed * self.budget.classifier_seconds
        count, epochs = affordable([text for text, _ in rows], self.tokenizer, tokens, self.budget)
        write_table(self.out / "areas", split_items(items, count))
        return self._tuned("areas", "classifier", split_items(rows, count), epochs)

    def tagger(self, items: Sequence[Sentence]) -> tuple[dict[str, Any], list[Display]]:
        """Fine-tune on `out`/names and write `out`/tagger; also return examples to show."""
        rows = [(" ".join(word for word, _ in item), [tag for _, tag in item]) for item in items]
        tokens = self.speed * self.budget.tagger_seconds
        count, epochs = affordable([text for text, _ in rows], self.tokenizer, tokens, self.budget)
        write_tags(self.out / "names", split_items(items, count))
        return self._tuned("names", "tagger", split_items(rows, count), epochs)

    def starts(self) -> dict[str, Any]:
        """Train the tagger on few sentences of `out`/names from three models, all alike.

        The settings were chosen on the dev sentences of another run.
        """
        budget, few = self.budget, {}
        for name, count in (("train", budget.few), ("test", budget.few_tests)):
            dataset = read_data(self.out / "names" / f"{name}.conll", TAGGING.name)
            few[name] = replace(dataset, examples=dataset.examples[:count])
        splits = Splits(few["train"], None, few["test"])
        time = f"{budget.steps} steps" if budget.steps else f"{60 * budget.minutes:.0f} seconds"
        models: dict[str, str | Path] = {
            "this BERT before pre-training": self.out / "beginning",
            f"this BERT, {time}": self.out / "model",
            f"{MODEL}, pre-trained on a GPU": MODEL,
        }
        settings = {"epochs": budget.few_epochs, "batch_size": 8, "optimizer": "adamw"}
        scores = [
            {"name": name, "f1": self._finetuned(model, splits, None, **settings)[1].scores["f1"]}
            for name, model in models.items()
        ]
        return {"learned_from": len(splits.train), "held_out": len(few["test"]), "starts": scores}

    def _finetuned(
        self, model: str | Path, data: Path | Splits, out: Path | None, **settings: Any
    ) -> tuple[FinetuningResult, Evaluation]:
        settings |= {"learning_rate": RATE, "layer_decay": 1.0, "max_length": self.budget.length}
        result = finetune(model, data, out, device="cpu", progress=self.progress, **settings)
        assert result.kept.test is not None  # there is test data
        return result, result.kept.test

    def _tuned(
        self, data: str, folder: str, rows: dict[str, list[Row]], epochs: int
    ) -> tuple[dict[str, Any], list[Display]]:
        labels = {
            name: [label for _, own in split for label in own] for name, split in rows.items()
        }
        frequent = Counter(labels["train"]).most_common(1)[0][0]
        result, test = self._finetuned(
            self.out / "model", self.out / data, self.out / folder, epochs=epochs, batch_size=16
        )
        scores = {name: float(value) for name, value in test.scores.items()}
        words = (result.extras.get("baseline") or {}).get("scores") or {}
        shown = [
            test.task.display(example, prediction)
            for example, prediction in zip(test.dataset.examples, test.predictions, strict=True)
            if len(example.texts[0].split()) in LENGTHS
        ]
        results = {
            "folder": folder,
            "learned_from": len(rows["train"]),
            "held_out": len(rows["test"]),
            "accuracy": scores["accuracy"],  # of held-out items; of a tagger, of their words
            "baseline": labels["test"].count(frequent) / len(labels["test"]),
            "baseline_label": frequent,
            "tfidf": words["test"]["accuracy"] if words else None,
            "f1": scores["f1"] if folder == "tagger" else None,  # of the names that it finds
            "scores": scores,
            "epochs": len(result.kept.history.epochs),
            "seconds": result.kept.history.seconds,
        }
        return results, shown[:SHOWN]


def score_bars(tuned: dict[str, Any]) -> list[tuple[str, float]]:
    """The score that decides, of the baselines and, at the end, of the model."""
    tagger = tuned["f1"] is not None
    words = [] if tuned["tfidf"] is None else [("baseline: TF-IDF", tuned["tfidf"])]
    frequent = f"baseline: always “{tuned['baseline_label']}”"
    own = tuned["f1"] if tagger else tuned["accuracy"]
    return [(frequent, 0.0 if tagger else tuned["baseline"]), *words, ("fine-tuned", own)]


@dataclass(frozen=True)
class AttentionHead:
    """One head's attention over a pair of sentences."""

    tokens: list[str]
    layer: int
    head: int
    weights: Floats  # (n, n): rows attend to columns


def furthest_head(bert: Bert, first: str, second: str, page: Path) -> AttentionHead:
    """Step 5: write the attention page; return the head that attends most to distant words."""
    view = bert.attention(first, second)
    view.save(page)
    maps = view.maps()
    words = np.array([token.source is not None for token in view.tokens])
    places = np.arange(len(words))
    # Attention to near ones was initialized (see `initialization`); to far ones it was learned.
    far = abs(places[:, None] - places) > FURTHEST
    weights = (maps * (far & words & words[:, None])).sum((-1, -2))
    layer, head = divmod(int(weights.argmax()), maps.shape[1])
    return AttentionHead([token.text for token in view.tokens], layer, head, maps[layer, head])


def group_senses(bert: Bert, texts: Sequence[str], most: int, page: Path) -> dict[str, Any]:
    """Step 5: write the page of an ambiguous word in `texts`, where it is frequent."""
    # There are no groups where the word is rare, or where scikit-learn is not installed.
    if len(find(AMBIGUOUS, texts)) < FEWEST_OCCURRENCES or find_spec("sklearn") is None:
        return {"word": "", "groups": []}
    result = senses(bert, AMBIGUOUS, texts, groups=2, most=most)
    write_text(page, senses_page(result, "the library"))
    groups = []
    for number in range(max(result.groups) + 1):
        members = result.members(number)
        examples = list(dict.fromkeys(result.places[n].around(34) for n in members))[:3]
        words = result.words(number)
        groups.append({"count": len(members), "words": words, "examples": examples})
    return {"word": AMBIGUOUS, "groups": groups}
