"""The value of pre-training: one tagger, trained from three models on few labelled sentences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertsmith.demo.meeting import MODEL
from bertsmith.demo.pace import Pace
from bertsmith.demo.tuning import RATE
from bertsmith.finetuning import finetune
from bertsmith.finetuning.history import Watcher
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.read import read_data
from bertsmith.tasks.splits import Splits
from bertsmith.tasks.tagging.task import TASK as TAGGING


@dataclass(frozen=True)
class Start:
    """A model to start from, and the F1 of the tagger that was trained from it."""

    name: str
    f1: float


@dataclass(frozen=True)
class Worth:
    """Three taggers that were trained on the same few sentences."""

    learned_from: int
    held_out: int
    starts: list[Start]


def compare_starts(out: Path, pace: Pace, watch: Callable[[], Watcher]) -> Worth:
    """Train the tagger of `out`/names on few sentences from three models, all alike.

    The settings were chosen on the dev sentences of another run.
    """
    train = _first(out / "names" / "train.conll", pace.few)
    test = _first(out / "names" / "test.conll", pace.few_tests)
    time = f"{pace.steps} steps" if pace.steps else f"{60 * pace.minutes:.0f} seconds"
    models: dict[str, str | Path] = {
        "this BERT before pre-training": out / "beginning",
        f"this BERT, {time}": out / "model",
        f"{MODEL}, pre-trained on a GPU": MODEL,
    }
    starts = []
    for name, model in models.items():
        result = finetune(
            model,
            Splits(train, None, test),
            device="cpu",
            watch=watch(),
            epochs=pace.few_epochs,
            batch_size=8,
            max_length=pace.length,
            optimizer="adamw",
            learning_rate=RATE,
            layer_decay=1.0,
        )
        assert result.kept.test is not None  # there is test data
        starts.append(Start(name, result.kept.test.scores["f1"]))
    return Worth(len(train), len(test), starts)


def _first(path: Path, count: int) -> Dataset[Any]:
    """The first sentences of a file that the demo wrote."""
    dataset = read_data(path, TAGGING.name)
    return replace(dataset, examples=dataset.examples[:count])
