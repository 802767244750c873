"""Does it learn? Every tiny recipe on real text, against the unigram entropy and chance.

    python benchmarks/learning.py --text FILES... --minutes 20

A vocabulary is learned and a corpus prepared from the text; each recipe then trains by the clock.
Losses on held-out text are compared with the entropy of the corpus's unigram distribution (what
is reached without looking at the context), accuracies of pairs with a half, and the recall of
replaced tokens is told. Curves go into one picture.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertsmith.corpus import Corpus, prepare
from bertsmith.tokenizer import train
from bertsmith.train import load_recipe, pretrain

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--text", type=Path, nargs="+", required=True)
parser.add_argument("--megabytes", type=float, default=40, help="of text, from the beginning")
parser.add_argument("--minutes", type=float, default=20)
parser.add_argument("--vocabulary", type=int, default=8000)
parser.add_argument("--recipes", nargs="+", default=[
    "tiny-bert", "tiny-bert-no-nsp", "tiny-bert-left-to-right", "tiny-roberta", "tiny-albert",
    "tiny-electra", "tiny-deberta-v3", "tiny-modernbert",
])  # fmt: skip
parser.add_argument("--set", nargs="*", default=[], help="changes to every recipe")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--work", type=Path, help="a folder for corpus and runs; kept")
parser.add_argument("--out", type=Path, default=Path("benchmarks/results/learning.json"))
options = parser.parse_args()
torch.set_num_threads(options.threads)


def corpus_of(folder: Path) -> Path:
    """The first megabytes of the text as shards."""
    from bertsmith.tokenizer.lines import read_lines

    if (folder / "corpus" / "manifest.json").exists():
        return folder / "corpus"
    text, size = folder / "text.txt", 0
    with text.open("w", encoding="utf-8") as out:
        for line in read_lines(options.text):
            out.write(line + "\n")
            size += len(line) + 1
            if size > options.megabytes * 1e6:
                break
    train([text], "wordpiece", size=options.vocabulary).save(folder / "tokenizer")
    prepare([text], folder / "tokenizer", folder / "corpus", held_out=0.02, progress=False)
    text.unlink()
    return folder / "corpus"


def entropy(corpus: Corpus) -> float:
    """Of the unigram distribution, in nats."""
    whole = corpus.gather(np.array([0]), np.array([corpus.tokens]))
    counts = np.bincount(whole, minlength=corpus.tokenizer.size).astype(float)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.work or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        data = corpus_of(folder)
        corpus = Corpus.open(data)
        floor = entropy(corpus)
        print(f"{corpus.tokens:,} tokens, unigram entropy {floor:.3f}", flush=True)
        results: dict[str, Any] = {}
        for name in options.recipes:
            changes = [f"data.corpus={data}", "train.steps=0", f"train.minutes={options.minutes}"]
            changes += [f"train.threads={options.threads}", "evaluate.every=100", *options.set]
            run = folder / f"{name}-{time.time_ns()}"
            found = pretrain(load_recipe(name, changes), run, show="none")
            rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
            results[name] = {
                "summary": {k: v for k, v in found.items() if k != "model"},
                "curve": [row for row in rows if "loss" not in row],
            }
            print(
                name, {k: round(v, 3) for k, v in found.items() if isinstance(v, float)}, flush=True
            )
    written = {
        "minutes": options.minutes,
        "tokens": corpus.tokens,
        "vocabulary": options.vocabulary,
        "unigram_entropy": floor,
        "threads": options.threads,
        "changes": options.set,
        "recipes": results,
    }
    options.out.write_text(json.dumps(written, indent=1) + "\n")
    draw(written, options.out.with_suffix(".png"))


def draw(written: dict[str, Any], path: Path) -> None:
    """Held-out losses, and accuracies of what has a chance level."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    for name, result in written["recipes"].items():
        for key, axis in (
            ("held_out_masked_lm", left), ("held_out_following_lm", left),
            ("held_out_generator", left),
            ("held_out_next_sentence_accuracy", right), ("held_out_sentence_order_accuracy", right),
            ("held_out_replaced_recall", right),
        ):  # fmt: skip
            points = [(row["step"], row[key]) for row in result["curve"] if key in row]
            if points:
                what = key.removeprefix("held_out_").replace("_accuracy", "").replace("_", " ")
                axis.plot(*zip(*points, strict=True), label=f"{name}: {what}")
    left.axhline(written["unigram_entropy"], color="black", linestyle=":", label="unigram entropy")
    right.axhline(0.5, color="black", linestyle=":", label="chance (pairs)")
    left.set(title="loss on held-out text", xlabel="step", ylabel="nats")
    right.set(title="pairs told apart; replaced tokens found", xlabel="step", ylim=(0, 1))
    for axis in (left, right):
        axis.legend(fontsize=7, frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


main()
