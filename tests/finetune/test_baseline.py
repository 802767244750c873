"""TF-IDF + logistic regression beside every classifier."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bertsmith.data import Dataset, Labelled, Splits, Where, read_data
from bertsmith.finetune import finetune
from bertsmith.finetune.baseline import baseline, verdict
from finetune.conftest import Write, labelled
from tasks.models import Made

Base = Callable[..., Made]


def test_a_baseline_is_scored_like_the_model(base: Base, write: Write, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    file, out = write("t.jsonl", labelled(48)), tmp_path / "out"
    result = finetune(base().folder, file, out, dev=file, epochs=1, learning_rate=1e-8)
    report = json.loads((out / "report.json").read_text())
    simple = report["baseline"]["scores"]["dev"]
    assert simple["accuracy"] == 1.0
    assert simple.keys() == report["scores"]["dev"].keys()
    assert any("is at least as good: dev accuracy 1.0000" in note for note in result.notes)
    assert "TF-IDF + logistic regression: dev accuracy 1." in (out / "README.md").read_text()


def test_several_labels(write: Write) -> None:
    pytest.importorskip("sklearn")
    rows = [
        {"text": f"a {'red' if n % 2 else 'blue'} {'car' if n % 3 else 'boat'}", "labels": names}
        for n in range(30)
        for names in [[*(["red"] if n % 2 else []), *(["car"] if n % 3 else [])]]
    ]
    data = read_data(write("t.jsonl", rows), "multilabel")
    simple = baseline(Splits(data, data))
    assert simple is not None
    assert simple["scores"]["dev"]["micro_f1"] == 1.0


def test_it_is_left_out_where_it_cannot_be(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    data = read_data(write("t.jsonl", labelled(8)))
    monkeypatch.setitem(sys.modules, "sklearn", None)
    simple = baseline(Splits(data, data))
    assert simple is not None
    assert "needs scikit-learn" in simple["note"]
    assert verdict(simple, {"dev": {"accuracy": 0.5}}, "accuracy") == ""
    few = {"dev": {"accuracy": 0.0, "count": 1.0}}
    assert "too few to compare" in verdict({"scores": few}, few, "accuracy")
    assert baseline(Splits(data)) is None


def test_thousands_of_labels_have_no_baseline() -> None:
    """It has a classifier for each label: minutes for what a table would do."""
    examples = [Labelled(f"text {n}", None, f"label {n}", Where("x", n + 1)) for n in range(2300)]
    data = Dataset(Path("x"), "classification", examples)
    assert baseline(Splits(data, data, None, [])) == {
        "name": "TF-IDF + logistic regression",
        "note": "no TF-IDF baseline: 2,300 labels are too many for it",
    }
