"""Does it learn? Every tiny recipe on real text, against the unigram entropy and chance.

    python benchmarks/learning.py --text FILES... --minutes 20
    python benchmarks/learning.py --corpus FOLDER --minutes 5 --jobs 8
    python benchmarks/learning.py --draw benchmarks/results/learning.json

A vocabulary is learned and a corpus prepared from the text, or one that is prepared is taken. Each
recipe then trains by the clock in a process of its own, on a GPU if there is one. Losses on
held-out text are compared with the entropy of the corpus's unigram distribution (what is reached
without looking at the context), accuracies of pairs with a half, and the recall of replaced tokens
is told. Curves go into one picture.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

LABELS = {
    "tiny-bert": "BERT",
    "tiny-bert-no-nsp": "BERT without NSP",
    "tiny-bert-left-to-right": "left to right",
    "tiny-roberta": "RoBERTa",
    "tiny-albert": "ALBERT",
    "tiny-electra": "ELECTRA",
    "tiny-deberta-v3": "DeBERTa-v3",
    "tiny-modernbert": "ModernBERT",
}
LOSSES = {"masked_lm": "", "following_lm": "", "generator": "'s generator"}
SHARES = {
    "next_sentence_accuracy": "next sentence",
    "sentence_order_accuracy": "sentence order",
    "replaced_recall": "replaced found",
}
POINTS = 60  # of a curve that are kept


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, nargs="+", help="files to learn from")
    parser.add_argument("--corpus", type=Path, help="a prepared corpus, instead of --text")
    parser.add_argument("--megabytes", type=float, default=40, help="of text, from the beginning")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--recipes", nargs="+", default=list(LABELS))
    parser.add_argument("--set", nargs="*", default=[], help="changes to every recipe")
    parser.add_argument("--jobs", type=int, default=1, help="recipes that train at once")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of each")
    parser.add_argument("--work", type=Path, help="a folder for corpus and runs; kept")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/learning.json"))
    parser.add_argument("--draw", type=Path, help="only draw what this file tells")
    found = parser.parse_args()
    if not (found.text or found.corpus or found.draw):
        parser.error("give --text, --corpus or --draw")
    return found


def corpus_of(asked: argparse.Namespace, folder: Path) -> Path:
    """The first megabytes of the text as shards."""
    from bertsmith.corpus import prepare
    from bertsmith.tokenizer import train
    from bertsmith.tokenizer.train import read_lines

    if (folder / "corpus" / "manifest.json").exists():
        return folder / "corpus"
    text, size = folder / "text.txt", 0
    with text.open("w", encoding="utf-8") as out:
        for line in read_lines(asked.text):
            out.write(line + "\n")
            size += len(line) + 1
            if size > asked.megabytes * 1e6:
                break
    train([text], "wordpiece", size=asked.vocabulary).save(folder / "tokenizer")
    prepare([text], folder / "tokenizer", folder / "corpus", held_out=0.02, progress=False)
    text.unlink()
    return folder / "corpus"


def entropy(data: Path) -> tuple[int, float]:
    """The tokens of a corpus, and the entropy of their distribution in nats."""
    from bertsmith.corpus import Corpus

    corpus = Corpus.open(data)
    whole = corpus.gather(np.array([0]), np.array([corpus.tokens]))
    counts = np.bincount(whole, minlength=corpus.tokenizer.size).astype(float)
    shares = counts[counts > 0] / counts.sum()
    return corpus.tokens, float(-(shares * np.log(shares)).sum())


def learn(name: str, changes: list[str], run: Path) -> None:
    """Train one recipe; what came of it is in the run's folder."""
    from bertsmith.train import load_recipe, pretrain

    pretrain(load_recipe(name, changes), run, show="none")


def learned(name: str, changes: list[str], run: Path) -> dict[str, Any] | None:
    """Train one recipe in a process of its own and read its folder; None where it failed."""
    process = multiprocessing.get_context("spawn").Process(target=learn, args=(name, changes, run))
    process.start()
    process.join()
    if process.exitcode:
        print(f"{name}: failed with exit status {process.exitcode}", flush=True)
        return None
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]
    tokens = {row["step"]: row["tokens"] for row in rows if "loss" in row}
    curve = [
        {"step": row["step"], "tokens": tokens[row["step"]], **short(row)}
        for row in rows
        if "loss" not in row
    ]
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    print(name, short(summary), flush=True)
    del summary["model"]
    return {"summary": summary, "curve": thinned(curve)}


def thinned(curve: list[Any]) -> list[Any]:
    """At most so many points, the first and the last among them, denser at the beginning."""
    kept = np.geomspace(1, len(curve), POINTS).round().astype(int) if curve else []
    return [curve[place - 1] for place in sorted(set(kept))]


def short(row: dict[str, Any]) -> dict[str, float]:
    """The measures of a row, to four digits."""
    return {key: round(value, 4) for key, value in row.items() if isinstance(value, float)}


def measure(asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train all recipes, some at once; where they ran and what they came to."""
    import torch

    from bertsmith import __version__

    data = asked.corpus or corpus_of(asked, folder)
    tokens, floor = entropy(data)
    print(f"{tokens:,} tokens, unigram entropy {floor:.3f}", flush=True)
    changes = [f"data.corpus={data}", "train.steps=0", f"train.minutes={asked.minutes}"]
    changes += [f"train.threads={asked.threads}", "checkpoint.every=0", "evaluate.every=100"]
    changes += asked.set
    with ThreadPoolExecutor(asked.jobs) as pool:
        runs = [
            pool.submit(learned, name, changes, folder / f"{name}-{time.time_ns()}")
            for name in asked.recipes
        ]
        results = {name: run.result() for name, run in zip(asked.recipes, runs, strict=True)}
    gpu = torch.cuda.is_available()
    return {
        "device": torch.cuda.get_device_name() if gpu else platform.machine() + " CPU",
        "cores": os.cpu_count(),
        "versions": {
            "python": platform.python_version(), "torch": torch.__version__,
            "bertsmith": __version__,
        },
        "minutes": asked.minutes,
        "jobs": asked.jobs,
        "threads": asked.threads,
        "changes": asked.set,
        "tokens": tokens,
        "unigram_entropy": floor,
        "recipes": {name: result for name, result in results.items() if result},
    }  # fmt: skip


def main() -> int:
    """Measure and draw, or only draw; 1 where a recipe failed."""
    asked = options()
    if asked.draw:
        draw(json.loads(asked.draw.read_text("utf-8")), asked.draw.with_suffix(".png"))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.work or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        written = measure(asked, folder)
    asked.out.write_text(json.dumps(written, indent=1) + "\n", "utf-8")
    try:
        draw(written, asked.out.with_suffix(".png"))
    except ModuleNotFoundError as missing:
        print(f"no picture: {missing}; --draw {asked.out} draws it elsewhere")
    return int(len(written["recipes"]) < len(asked.recipes))


def draw(written: dict[str, Any], path: Path) -> None:
    """Held-out losses, and accuracies of what has a chance level; names at the lines' ends."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.6), width_ratios=(1.15, 1))
    colours = dict(zip(LABELS, pyplot.get_cmap("tab10").colors, strict=False))
    ends: dict[Any, list[tuple[float, float, str, Any]]] = {left: [], right: []}
    for name, result in written["recipes"].items():
        for axis, measures, digits in ((left, LOSSES, ".2f"), (right, SHARES, ".0%")):
            for key, what in measures.items():
                points = [
                    (row["tokens"] / 1e6, row[f"held_out_{key}"])
                    for row in result["curve"]
                    if f"held_out_{key}" in row
                ]
                if not points:
                    continue
                colour, (x, y) = colours.get(name, "grey"), points[-1]
                axis.plot(*zip(*points, strict=True), color=colour, linewidth=1.6)
                said = LABELS.get(name, name) + (what if axis is left else f": {what}")
                ends[axis].append((x, y, f"{said} {y:{digits}}", colour))
    floor = written["unigram_entropy"]
    left.axhline(floor, color="black", linestyle=":", linewidth=1)
    left.text(1, floor, f"unigram entropy {floor:.2f}", **beside(left, "bottom"))
    right.axhline(0.5, color="black", linestyle=":", linewidth=1)
    right.text(1, 0.5, "chance, for pairs", **beside(right, "top"))
    left.set_title("Loss on held-out text, nats", loc="left", fontsize=11)
    right.set_title("Pairs judged right, replaced tokens found", loc="left", fontsize=11)
    right.set_ylim(0, 1)
    right.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    for axis in (left, right):
        axis.set_xscale("log")
        axis.set_xlabel("million tokens read", fontsize=9)
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(lambda count, _: f"{count:g}")
        axis.xaxis.set_minor_locator(ticker.NullLocator())
        axis.tick_params(labelsize=9)
        axis.spines[["top", "right"]].set_visible(False)
        name_ends(axis, ends[axis])
    figure.text(0.005, 0.005, footing(written), fontsize=8, color="dimgrey")
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(path, dpi=100)


def beside(axis: Any, foot: str) -> dict[str, Any]:
    """How the name of a level is written: at the right end of its line, above or below it."""
    return {"transform": axis.get_yaxis_transform(), "ha": "right", "va": foot, "fontsize": 8}


def name_ends(axis: Any, ends: list[tuple[float, float, str, Any]], apart: float = 0.052) -> None:
    """Names to the right of the lines' ends, moved apart where they would overlap."""
    bottom, top = axis.get_ylim()
    ends = sorted(ends, key=lambda end: end[1])
    heights: list[float] = []
    for _, y, _, _ in ends:
        heights.append(max([(y - bottom) / (top - bottom), *(h + apart for h in heights[-1:])]))
    ceiling = 1.0
    for place in reversed(range(len(heights))):  # what was pushed out at the top comes back down
        heights[place] = min(heights[place], ceiling)
        ceiling = heights[place] - apart
    for (x, y, said, colour), height in zip(ends, heights, strict=True):
        axis.annotate(
            said, (x, y), (1.03, height), textcoords="axes fraction", color=colour, fontsize=8.5,
            va="center", arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5},
        )  # fmt: skip


def footing(written: dict[str, Any]) -> str:
    """Where the curves are from."""
    together = f"{written['jobs']} at once" if written["jobs"] > 1 else "one after the other"
    return (
        f"{len(written['recipes'])} recipes, {written['minutes']:g} minutes each, {together},"
        f" {written['device']}; {written['tokens'] / 1e6:.1f} million tokens of text"
    )


if __name__ == "__main__":
    sys.exit(main())
