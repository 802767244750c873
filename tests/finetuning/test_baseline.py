"""TF-IDF + logistic regression, and a linear layer on vectors, beside every classifier."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bertsmith.data.tables import Where
from bertsmith.finetuning import finetune
from bertsmith.reports.baseline import baseline, verdict
from bertsmith.tasks.classification.reading import Labelled
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.read import read_data
from bertsmith.tasks.splits import Splits
from finetuning.conftest import Write, labelled
from tasks.models import Maker


@pytest.fixture(autouse=True)
def without_vectors() -> None:
    """Here they are computed."""


def test_a_baseline_is_scored_like_the_model(base: Maker, write: Write, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    file, out = write("t.jsonl", labelled(48)), tmp_path / "out"
    result = finetune(base().folder, file, out, dev=file, epochs=1, learning_rate=1e-8)
    report = json.loads((out / "report.json").read_text())
    simple = report["baseline"]["scores"]["dev"]
    assert simple["accuracy"] == 1.0
    assert simple.keys() == report["scores"]["dev"].keys()
    assert any("is at least as good: dev accuracy 1.0000" in note for note in result.notes)
    assert "TF-IDF + logistic regression: dev accuracy 1." in (out / "README.md").read_text()
    vectors = report["vectors"]
    assert vectors["name"] == "linear layer on vectors of bertsmith-embed"
    assert vectors["scores"]["dev"].keys() >= simple.keys()
    assert vectors["scores"]["dev"]["accuracy"] > 0.9


def test_names_of_labels_that_are_numbers(write: Write) -> None:
    pytest.importorskip("sklearn")
    rows = [{"text": f"a {'red' if n % 2 else 'blue'} car", "label": str(n % 2)} for n in range(30)]
    data = read_data(write("t.jsonl", rows), "classification")
    simple = baseline(Splits(data, data), "balanced")
    assert simple is not None
    assert simple["scores"]["dev"]["accuracy"] == 1.0


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
    assert "too few dev examples to compare" in verdict({"scores": few}, few, "accuracy")
    assert baseline(Splits(data)) is None


def test_it_has_the_same_class_weights(write: Write) -> None:
    pytest.importorskip("sklearn")
    rows = [{"text": f"word{n % 7} common", "label": "no"} for n in range(60)]
    rows += [{"text": f"word{n} common", "label": "yes"} for n in range(6)]
    data = read_data(write("t.jsonl", rows))
    plain, balanced = (baseline(Splits(data, data), one) for one in ("", "balanced"))
    assert plain is not None
    assert balanced is not None
    assert plain["scores"]["dev"]["f1"] == 0.0  # of "yes", which is rare
    assert balanced["scores"]["dev"]["f1"] > 0.0
    several = [
        {"text": row["text"], "labels": ["yes"] if row["label"] == "yes" else []} for row in rows
    ]
    data = read_data(write("m.jsonl", several), "multilabel")
    scores = [
        (baseline(Splits(data, data), one) or {})["scores"]["dev"]["micro_f1"]
        for one in ("", "balanced", "yes=20")
    ]
    assert scores[0] == 0.0 < min(scores[1:])


@pytest.mark.parametrize("task", ["regression", "similarity"])
def test_pairs_are_compared_with_vectors_of_the_package(
    task: str, base: Maker, write: Write, tmp_path: Path
) -> None:
    words = ("violin", "train", "cheese")
    rows = [
        {"text": f"The {a} is here.", "pair": f"There is a {b}.", "score": 5.0 if a == b else n / 9}
        for n, (a, b) in enumerate((a, b) for a in words for b in words)
    ]
    file, out = write("p.jsonl", rows * 2), tmp_path / "out"
    finetune(base().folder, file, out, dev=file, task=task, epochs=1, learning_rate=1e-8)
    report = json.loads((out / "report.json").read_text())
    simple = report["baseline"]
    assert simple["name"] == "cosine of bertsmith-embed, not trained on these pairs"
    assert simple["scores"]["dev"]["pearson"] > 0.8
    assert any("bertsmith-embed" in note and "at least as good" in note for note in report["notes"])
    assert simple["name"] in (out / "report.html").read_text()


def test_single_texts_with_scores_have_no_baseline(write: Write) -> None:
    rows = [{"text": f"text {n}", "score": n / 3} for n in range(6)]
    data = read_data(write("n.jsonl", rows), "regression")
    assert baseline(Splits(data, data)) is None


def test_thousands_of_labels_have_no_baseline() -> None:
    """It has a classifier for each label: minutes for what a table would do."""
    examples = [Labelled(f"text {n}", None, f"label {n}", Where("x", n + 1)) for n in range(2300)]
    data = Dataset(Path("x"), "classification", examples)
    assert baseline(Splits(data, data, None, [])) == {
        "name": "TF-IDF + logistic regression",
        "short": "TF-IDF",
        "note": "no TF-IDF baseline: 2,300 labels are too many for it",
    }
