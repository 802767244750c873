"""The value of pre-training: one classifier, trained from three starts on few labels."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.data import Splits, read_data
from bertsmith.demo.meeting import MODEL
from bertsmith.demo.pace import Pace
from bertsmith.demo.tuning import RATE
from bertsmith.finetune import finetune
from bertsmith.finetune.loop import Watcher


@dataclass(frozen=True)
class Start:
    """A model to start from, and the accuracy of the classifier that was trained from it."""

    name: str
    accuracy: float


@dataclass(frozen=True)
class Worth:
    """Three classifiers that were trained on the same few examples."""

    learned_from: int
    held_out: int
    starts: list[Start]


def compare_starts(out: Path, pace: Pace, watch: Callable[[], Watcher]) -> Worth:
    """Train the classifier of `out`/areas on few examples, from three models."""
    train = _rows(out / "areas" / "train.csv")[: pace.few]
    known = {label for _, label in train}
    test = [row for row in _rows(out / "areas" / "test.csv") if row[1] in known][: pace.few_tests]
    splits = Splits(read_data(train, "classification"), None, read_data(test, "classification"))
    tiny = {"learning_rate": RATE, "layer_decay": 1.0, "epochs": pace.tiny_epochs}
    time = f"{pace.steps} steps" if pace.steps else f"{60 * pace.minutes:.0f} seconds"
    models: dict[str, tuple[str | Path, dict[str, Any]]] = {
        "random weights, no pre-training": (out / "beginning", tiny),
        f"this BERT, {time}": (out / "model", tiny),
        f"{MODEL}, 13 minutes on a GPU": (MODEL, {"epochs": pace.few_epochs}),
    }
    starts = []
    for name, (model, settings) in models.items():
        result = finetune(
            model,
            splits,
            device="cpu",
            watch=watch(),
            batch_size=8,
            max_length=pace.length,
            **settings,
        )
        assert result.kept.test is not None  # there is test data
        starts.append(Start(name, result.kept.test.scores["accuracy"]))
    return Worth(len(train), len(test), starts)


def _rows(path: Path) -> list[tuple[str, str]]:
    """Texts and labels of a file that the demo wrote."""
    with path.open(encoding="utf-8", newline="") as stream:
        _, *rows = csv.reader(stream)
    return [(text, label) for text, label in rows]
