"""The fast learner: a linear layer on stored vectors, saved as an ordinary model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sklearn.linear_model import LogisticRegression

from bertsmith import BertsmithError, load
from bertsmith.checkpoint import add_averaging_layer, can_average, read
from bertsmith.finetuning.frozen import FrozenEncoder
from bertsmith.tasks.read import read_data
from finetuning.conftest import Write, labelled, texts
from finetuning.test_labels import theirs
from finetuning.test_words import sentences
from tasks.models import Maker

TEXT = "the old river flows Paris number 3"


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "deberta-v2", "modernbert"])
def test_a_fit_is_an_ordinary_model(family: str, base: Maker, write: Write, tmp_path: Path) -> None:
    train = read_data(write("train.jsonl", labelled()))
    learner = FrozenEncoder(base(family).folder, "classification", device="cpu").fit(train)
    assert learner.evaluate(train).scores["accuracy"] == 1.0
    learner.bert.save(tmp_path / "out")
    found = load(tmp_path / "out", device="cpu").classify(TEXT)
    assert found.label == "city"
    chances = learner.probabilities([replace(train.examples[0], text=TEXT)])[0]
    assert list(found.scores.values()) == pytest.approx(chances.tolist(), abs=1e-5)
    logits = theirs(tmp_path / "out", TEXT)
    assert logits.softmax(-1).tolist() == pytest.approx(chances.tolist(), abs=1e-4)


def test_the_fit_is_logistic_regression(base: Maker, write: Write) -> None:
    rows = [{"text": text, "label": text.split()[4]} for text, _ in texts(60)]
    train = read_data(write("train.jsonl", rows))
    encoder = FrozenEncoder(base("modernbert").folder, "classification", device="cpu")
    learner = encoder.fit(train, strengths=[10.0], class_weights="balanced")
    vectors = np.concatenate(
        [
            rows.numpy()
            for one in train.examples
            for rows in encoder.base.vectors(encoder.base.windows([one.text]))
        ]
    )
    vectors = vectors - vectors.mean(0)
    vectors /= np.sqrt((vectors**2).sum(1).mean())
    names = [one.label for one in train.examples]
    reference = LogisticRegression(C=10.0, class_weight="balanced", max_iter=5000, tol=1e-8)
    expected = reference.fit(vectors, names).predict_proba(vectors)
    assert list(reference.classes_) == list(learner.labels)
    np.testing.assert_allclose(learner.probabilities(train.examples), expected, atol=5e-3)


def test_a_text_passes_the_encoder_once(base: Maker, write: Write) -> None:
    train = read_data(write("train.jsonl", labelled()))
    encoder = FrozenEncoder(base().folder, "classification", device="cpu")
    passes = []
    encoder.base.model.encoder.register_forward_hook(lambda *_: passes.append(1))
    encoder.fit(replace(train, examples=train.examples[:40]))
    first = len(passes)
    cross = encoder.cross_fit(replace(train, examples=train.examples[:40]))
    assert first
    assert len(passes) == first
    assert len(cross.predictions) == 40
    encoder.fit(train)
    assert len(passes) > first


def test_cross_fit_does_not_see_the_example(base: Maker, write: Write) -> None:
    rows = labelled(60)
    wrong = [3, 10, 25]
    for number in wrong:
        rows[number]["label"] = "thing" if rows[number]["label"] == "city" else "city"
        rows[number]["text"] += f" x{number}"
    train = read_data(write("train.jsonl", rows))
    encoder = FrozenEncoder(base("modernbert").folder, "classification", device="cpu")
    cross = encoder.cross_fit(train)
    assert cross.probabilities.shape == (60, 2)
    assert np.allclose(cross.probabilities.sum(1), 1)
    values = [one.value for one in cross.predictions]
    assert all(values[number] != rows[number]["label"] for number in wrong)
    right = [n for n in range(60) if values[n] == rows[n]["label"]]
    assert len(right) >= 50  # wrong labels mislead a tiny encoder of random weights
    assert cross.evaluation().scores["accuracy"] == pytest.approx(len(right) / 60)
    where: dict[str, set[int]] = {}
    for row, fold in zip(rows, cross.folds, strict=True):
        where.setdefault(row["text"], set()).add(fold)
    assert max(map(len, where.values())) == 1  # no text is in two folds
    units = cross.unit_probabilities()
    np.testing.assert_allclose(
        np.concatenate([one for one, _ in units]), cross.probabilities, atol=1e-5
    )


def test_several_labels_and_numbers(base: Maker, write: Write, tmp_path: Path) -> None:
    several = [
        {"text": text, "labels": ["city", "place"] if label == "city" else []}
        for text, label in texts()
    ]
    train = read_data(write("several.jsonl", several), "multilabel")
    learner = FrozenEncoder(base().folder, "multilabel", device="cpu").fit(train)
    assert learner.evaluate(train).scores["exact"] == 1.0
    numbers = [
        {"text": text, "score": 50.0 if label == "city" else -20.0} for text, label in texts()
    ]
    train = read_data(write("numbers.jsonl", numbers), "regression")
    learner = FrozenEncoder(base().folder, "regression", device="cpu").fit(train)
    assert learner.evaluate(train).scores["pearson"] > 0.95
    learner.bert.save(tmp_path / "numbers")
    logits = theirs(tmp_path / "numbers", TEXT)
    assert float(logits[0]) == pytest.approx(50, abs=15)
    with pytest.raises(BertsmithError, match="no probability"):
        learner.probabilities(train.examples)


def test_tags(base: Maker, write: Write, tmp_path: Path) -> None:
    train = read_data(write("train.jsonl", sentences()))
    encoder = FrozenEncoder(base().folder, train.task, device="cpu")
    learner = encoder.fit(train)
    assert learner.evaluate(train).scores["accuracy"] > 0.9
    learner.bert.save(tmp_path / "out")
    again = load(tmp_path / "out", device="cpu")
    theirs_ = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "out").eval()
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    text = train.examples[0].text
    with torch.no_grad():
        logits = theirs_(**words(text, return_tensors="pt")).logits[0]
    (found,) = again.run(again.windows([text]), again.head_pass("tag", [], tokens=True).compute)
    np.testing.assert_allclose(found.numpy(), logits.numpy(), atol=2e-4)
    (chances, classes) = learner.unit_probabilities(train.examples[:1])[0]
    assert len(chances) == len(classes) == len(train.examples[0].tags)


def test_a_task_without_a_head_is_refused(base: Maker) -> None:
    with pytest.raises(BertsmithError, match="fast learner"):
        FrozenEncoder(base().folder, "similarity")


def test_an_averaging_layer(base: Maker) -> None:
    made = base("bert")
    before = read(made.folder)
    assert can_average(before.config)
    after = add_averaging_layer(before)
    bert = made.ours
    windows = bert.windows(["the old river flows", "storm"])

    def states(model: Any) -> list[torch.Tensor]:
        from bertsmith.infer.run import run

        device = [torch.device("cpu")]
        return run(model, windows, lambda m, h, b, _: list(b.layout.split(h.last)), devices=device)

    for old, new in zip(states(before.model), states(after.model), strict=True):
        mean = old.mean(0)
        expected = torch.nn.functional.layer_norm(mean, mean.shape)
        assert torch.allclose(new, expected.expand_as(new), atol=0.02)
    assert not can_average(read(base("albert").folder).config)
    assert not can_average(read(base("modernbert").folder).config)
