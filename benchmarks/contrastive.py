"""Few labels: how long `--auto` trains contrastively, at which learning rate, and what it gains.

    python benchmarks/contrastive.py bertsmith-embed
    python benchmarks/contrastive.py bertsmith-embed --loss "cross entropy" --epochs 8
    python benchmarks/contrastive.py bertsmith-embed --loss "cross entropy" --draws 0
    python benchmarks/contrastive.py bertsmith-embed --draws 0 --epochs 32 --rates 0.5 1

Accuracy of a linear layer on an encoder's vectors before and after contrastive training on 8 texts
a label, by draw. The sets are those that settings are chosen on: sentiment in the first 120
characters of IMDb, the domain of SubjQA's questions and of the first 60 characters of its reviews,
and the article that a question of SQuAD (its first 50 characters) is about. Each draw has at most
six labels, and 400 texts to score. Results are written at once, and those that exist are not
computed again. "cosines" is the loss of --auto; "cross entropy" that of Khosla et al. (2020) at a
temperature of 0.1, which it replaced.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from frozen_sets import LABELS, SETS, SHORT
from torch import Tensor

from bertsmith.finetuning import settings_for
from bertsmith.finetuning.auto import (
    WARM_BATCH,
    Candidate,
    ContrastiveWarmUp,
    ModelSelection,
)
from bertsmith.finetuning.frozen import FrozenEncoder
from bertsmith.finetuning.settings import rate_for
from bertsmith.tasks.read import read_data

TEST = 400  # texts
CHOSEN = ("imdb", "domains", "reviews", "articles")


def drawn(name: str, shots: int, draw: int) -> tuple[Any, Any]:
    """Rows of a few labels to learn from, and others to score."""
    rows = SETS[name]()
    source = random.Random(draw)
    source.shuffle(rows)
    labels = sorted({label for _, label in rows})
    labels = source.sample(labels, min(LABELS, len(labels)))
    rows = [
        {"text": text[: SHORT.get(name)], "label": label} for text, label in rows if label in labels
    ]
    learned = [row for label in labels for row in [r for r in rows if r["label"] == label][:shots]]
    others = [row for row in rows if row not in learned][:TEST]
    return tuple(read_data(part, "classification") for part in (learned, others))


def cross_entropy(self: Any, outputs: Tensor, batch: Any, targets: Any) -> Tensor:
    """The cross entropy of each text with the others of its label, among all of the batch."""
    same = (targets["labels"][:, None] == targets["labels"]).float().fill_diagonal_(0.0)
    logits = (outputs @ outputs.T / 0.1).fill_diagonal_(-math.inf)
    logs = logits.log_softmax(-1).masked_fill(same == 0, 0.0)
    return -(logs.sum(-1) / same.sum(-1).clamp(min=1)).sum()


def measured(model: str, train: Any, test: Any, epochs: int, rate: float) -> dict[str, Any]:
    """The accuracy after so many epochs (0: of a frozen encoder), and the seconds."""
    train = replace(train, known_labels=train.labels)
    settings = settings_for("classification")
    began = time.perf_counter()
    if not epochs:
        learner = FrozenEncoder(model, "classification").fit(train)
    else:
        encoder = FrozenEncoder(model, "classification")
        usual = rate_for(encoder.base.checkpoint.config.width)
        own = Candidate("", lambda *_: None, model)
        own.settings = settings.changed(
            epochs=epochs, batch_size=WARM_BATCH, learning_rate=usual * rate, keep="last"
        )
        plan: Any = SimpleNamespace(settings=settings, ranks=SimpleNamespace(device="cpu"))
        selection = ModelSelection.__new__(ModelSelection)
        selection.plan, selection.task = plan, encoder.task
        learner = selection._contrastive(own, train, 1e9)
    seconds = time.perf_counter() - began
    return {"accuracy": learner.evaluate(test).scores["accuracy"], "seconds": round(seconds, 2)}


def main() -> None:
    """Compute what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--sets", nargs="+", default=list(CHOSEN), choices=list(SETS))
    parser.add_argument("--shots", type=int, default=8)
    parser.add_argument("--draws", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, nargs="+", default=[8, 20])
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0])
    parser.add_argument("--loss", default="cosines", choices=["cosines", "cross entropy"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/contrastive.json"))
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    if asked.loss == "cross entropy":
        ContrastiveWarmUp.loss = cross_entropy  # type: ignore[method-assign]
    results = json.loads(asked.out.read_text("utf-8")) if asked.out.exists() else {}
    ways = [(0, 0.0), *((epochs, rate) for epochs in asked.epochs for rate in asked.rates)]
    for draw in asked.draws:
        for name in asked.sets:
            train, test = drawn(name, asked.shots, draw)
            for model in asked.models:
                shown = "bertsmith-embed" if model == "bertsmith-embed" else "named"
                for epochs, rate in ways:
                    way = f"{asked.loss}, {epochs} epochs, rate x {rate:g}" if epochs else "frozen"
                    key = f"{name}, {asked.shots} texts a label, draw {draw}, {shown}, {way}"
                    if key not in results:
                        results[key] = measured(model, train, test, epochs, rate)
                        asked.out.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
                        print(key, results[key], flush=True)


if __name__ == "__main__":
    main()
