"""Tiny models to fine-tune, and small files that can be learned in a second."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bertsmith.finetuning.settings import RunSettings
from bertsmith.finetuning.tuning import History, Tuning
from bertsmith.infer.loaded import LoadedModel
from bertsmith.tasks.training import Sample, Training
from tasks.models import Made, Maker

Write = Callable[[str, list[dict[str, Any]]], Path]
FAST: dict[str, Any] = {"learning_rate": 3e-3, "epochs": 16, "batch_size": 16, "warmup": 0.0}
CITIES, OTHERS = ("Prague", "Warsaw", "Paris"), ("bees", "storm", "violin")


@pytest.fixture(autouse=True)
def without_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """No baseline of vectors: it takes longer than these runs; test_baseline.py looks at it."""
    monkeypatch.setattr("bertsmith.finetuning.run._vectors_baseline", lambda *_: None)


def train(
    bert: LoadedModel,
    training: Training,
    samples: Sequence[Sample],
    settings: RunSettings,
    look: Callable[[], dict[str, float]] | None,
) -> History:
    """Train a model on samples; afterwards it has the weights of the best epoch."""
    tuning = Tuning(bert, training, samples, settings, look)
    tuning.run()
    return tuning.history


@pytest.fixture(scope="session")
def base(made: Maker) -> Callable[..., Made]:
    """A tiny encoder of a family, without a head and without dropout."""

    def make(family: str = "bert", **more: Any) -> Made:
        off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return made(family, "Model", **({} if family == "modernbert" else off), **more)

    return make


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write rows as a jsonl file."""

    def call(name: str, rows: list[dict[str, Any]]) -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        return path

    return call


def texts(count: int = 48, filler: str = "the old river flows") -> list[tuple[str, str]]:
    """Texts with the name of a city or of something else, and which of the two it is."""
    rows = []
    for number in range(count):
        city = number % 2 == 0
        word = (CITIES if city else OTHERS)[number // 2 % 3]
        rows.append((f"{filler} {word} number {number % 7}", "city" if city else "thing"))
    return rows


def labelled(count: int = 48) -> list[dict[str, Any]]:
    """Rows of texts and labels."""
    return [{"text": text, "label": label} for text, label in texts(count)]
