"""Students of sentence encoders, and static vectors that are tuned on text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bertsmith as bs
from bertsmith import BertsmithError
from finetuning.conftest import Write, texts
from tasks.models import LINES, Made, Maker

Base = Callable[..., Made]
TEXTS = [{"text": f"{line} {number}"} for number in range(6) for line in LINES.splitlines()]
FAST = {"learning_rate": 3e-3, "batch_size": 16, "warmup": 0.0}


@pytest.mark.parametrize("loss", ["cosine", "mse"])
def test_a_student_learns_vectors(loss: str, base: Base, write: Write, tmp_path: Path) -> None:
    file, out = write("texts.jsonl", TEXTS), tmp_path / "student"
    before = bs.distill(base().folder, file, loss=loss, epochs=1, learning_rate=1e-9, batch_size=64)
    after = bs.distill(base().folder, file, out, loss=loss, epochs=5, **FAST)
    content = json.loads((out / "distill.json").read_text())
    assert content == after.to_dict()
    start, end = (one.content["agreement"]["held_out"] for one in (before, after))
    assert end["mean_cosine"] > start["mean_cosine"]
    assert end["mean_cosine"] > 0.8
    assert content["student"]["layers"] == 1
    again = bs.load(out)
    assert np.allclose(again.embed(["a river"]), after.model.embed(["a river"]), atol=1e-6)


def test_pairs_with_scores_are_scored(base: Base, write: Write) -> None:
    file = write("texts.jsonl", TEXTS[:40])
    pairs = [
        {"sentence1": text, "sentence2": f"{label} river", "score": float(number % 5)}
        for number, (text, label) in enumerate(texts(20))
    ]
    dev = write("dev.jsonl", pairs)
    result = bs.distill(base().folder, file, dev=dev, epochs=1)
    assert set(result.content["scores"]["dev"]) == {"teacher", "student"}
    assert result.content["comparison"]["dev"]["metric"] == "spearman"


def test_vectors_of_a_classifier(made: Maker, write: Write) -> None:
    """Whatever a teacher was trained for, it makes vectors; dev files need scores."""
    file = write("texts.jsonl", TEXTS[:20])
    teacher = made("bert", "ForSequenceClassification").folder
    pairs = [{"sentence1": "a", "sentence2": f"river {n}", "score": float(n)} for n in range(5)]
    result = bs.distill(teacher, file, learn="vectors", dev=write("dev.jsonl", pairs), epochs=1)
    assert "spearman" in result.content["scores"]["dev"]["student"]
    bare = write("bare.jsonl", [{"sentence1": "a", "sentence2": "b", "score": None}])
    with pytest.raises(BertsmithError, match="no labels"):
        bs.distill(teacher, file, learn="vectors", dev=bare, epochs=1)


def test_a_narrower_student(base: Base, made: Maker, write: Write) -> None:
    file = write("texts.jsonl", TEXTS)
    narrow = made("roberta", "Model", hidden_size=16).folder
    result = bs.distill(base().folder, file, student=narrow, epochs=8, **FAST)
    agreement = result.content["agreement"]["held_out"]
    assert "mean_cosine" not in agreement
    assert agreement["spearman_of_cosines"] > 0.3
    with pytest.raises(BertsmithError, match=r"\(width 32\) is wider than its teacher \(16\)"):
        bs.distill(narrow, file, student=base().folder)


def test_static_vectors_are_tuned(base: Base, write: Write, tmp_path: Path) -> None:
    file, out = write("texts.jsonl", TEXTS), tmp_path / "static"
    plain = bs.distill(base().folder, to="static", width=16)
    tuned = bs.distill(base().folder, file, out, to="static", width=16, epochs=8)
    assert tuned.content["kind"] == "static"
    assert bs.load(out).embed(["a river"]).shape == (1, 16)
    held = [row["text"].replace("1", "99") for row in TEXTS[:40]]
    teacher = bs.load(base().folder).embed(held, normalise=True)
    teacher -= teacher.mean(0)  # static vectors are learned from the centre
    teacher /= np.linalg.norm(teacher, axis=1, keepdims=True)
    pairs = np.triu_indices(len(held), 1)

    def near(model: bs.Bert) -> float:
        vectors = model.embed(held)
        both = [(one @ one.T)[pairs] for one in (teacher, vectors)]
        return float(np.corrcoef(*both)[0, 1])

    assert near(tuned.model) > near(plain.model)
