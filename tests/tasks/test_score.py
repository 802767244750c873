"""Scores of whole files: all gold counts, and each task has its own."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import score
from bertsmith.tasks.read import read_data


def dataset(folder: Path, *rows: dict[str, Any], task: str | None = None) -> Dataset[Any]:
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return read_data(folder / "a.jsonl", task)


def test_labels(tmp_path: Path) -> None:
    rows = [{"text": str(n), "label": label} for n, label in enumerate(["a", "b", "b", None])]
    found = score(dataset(tmp_path, *rows), ["a", "b", "a", "b"])
    assert found["count"] == 3  # the last has no gold
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["f1"] == pytest.approx(2 / 3)
    assert found["mcc"] == pytest.approx(0.5)
    with pytest.raises(BertsmithError, match="3 predictions for 4 gold"):
        score(dataset(tmp_path, *rows), ["a", "b", "a"])


def test_several_labels(tmp_path: Path) -> None:
    rows = [{"text": "1", "labels": ["a", "b"]}, {"text": "2", "labels": []}]
    found = score(dataset(tmp_path, *rows), [["a"], []])
    assert (found["exact"], found["micro_f1"]) == (0.5, pytest.approx(2 / 3))


def test_numbers(tmp_path: Path) -> None:
    rows = [{"text": str(n), "score": float(n)} for n in range(4)]
    data = dataset(tmp_path, *rows, task="regression")
    found = score(data, [0.0, 2.0, 4.0, 6.0])
    assert (found["pearson"], found["spearman"]) == (pytest.approx(1), pytest.approx(1))
    assert found["mean_squared_error"] == pytest.approx(3.5)
    assert math.isnan(score(data, [1.0] * 4)["pearson"])  # of a constant there is none


def test_tags(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("Ada B-PER\nLovelace I-PER\nran O\n\nParis B-LOC\n")
    data = read_data(tmp_path / "a.conll")
    found = score(data, [["B-PER", "I-PER", "O"], ["O"]])
    assert (found["precision"], found["recall"]) == (1.0, 0.5)
    assert found["accuracy"] == 0.75
    (tmp_path / "b.conll").write_text("Ada PROPN\nran VERB\n")
    assert score(read_data(tmp_path / "b.conll"), [["PROPN", "NOUN"]]) == {
        "count": 1,
        "accuracy": 0.5,
    }


def test_answers(tmp_path: Path) -> None:
    def asked(name: str, answers: list[str]) -> dict[str, Any]:
        passage = "the black cat"
        return {"id": name, "question": name, "context": passage, "answers": answers}

    data = dataset(tmp_path, asked("1", ["black cat", "cat"]), asked("2", []))
    assert score(data, ["The cat", "cat"]) == {"count": 2, "exact": 0.5, "f1": 0.5}
    assert score(data, ["black", ""])["f1"] == pytest.approx((2 / 3 + 1) / 2)
    twice = dataset(tmp_path, asked("1", ["cat"]), {**asked("1", ["cat"]), "question": "x"})
    with pytest.raises(BertsmithError, match="the same id"):
        score(twice, ["cat", "cat"])


def test_choices(tmp_path: Path) -> None:
    rows = [{"ctx": "p", "endings": ["a", "b"], "label": n % 2} for n in range(4)]
    assert score(dataset(tmp_path, *rows), [0, 1, 1, 1])["accuracy"] == 0.75


def test_nothing_is_right(tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match="has no labels to score"):
        score(dataset(tmp_path, {"text": "a", "label": -1}), ["x"])
    related = dataset(tmp_path, {"anchor": "a", "positive": "b"})
    with pytest.raises(BertsmithError, match="need the model"):
        score(related, [1.0])
