"""Similarity: vectors that `sentence-transformers` makes just so."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith import BertsmithError, load
from bertsmith.checkpoint.dense import Dense
from bertsmith.finetuning import finetune, settings_for
from bertsmith.finetuning.batches import batch_of, shuffled_batches
from bertsmith.finetuning.setup import open_fresh
from bertsmith.tasks.embedding import embed
from bertsmith.tasks.read import read_data
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.similarity.task import partner_ranks
from bertsmith.tasks.training import Training
from finetuning.conftest import CITIES, FAST, OTHERS, Write
from tasks.models import Made

Base = Callable[..., Made]


def test_texts_that_belong_together(base: Base, write: Write, tmp_path: Path) -> None:
    words = [*CITIES, *OTHERS, "daughter", "letter", "garden", "spaniel", "roof", "mayor"]
    rows = [
        {"anchor": f"the old {word} {more}", "positive": f"river {word}"}
        for more in ("flows", "asked", "home", "light")
        for word in words
    ]
    file, out = write("t.jsonl", rows), tmp_path / "out"
    before = finetune(base().folder, file, dev=file, **FAST | {"epochs": 1, "learning_rate": 1e-9})
    result = finetune(base().folder, file, out, dev=file, **FAST)
    assert (result.task, result.metric) == ("similarity", "accuracy_at_1")
    assert result.kept.value > max(0.9, before.kept.value)
    reference = pytest.importorskip("sentence_transformers")
    texts = [rows[0]["anchor"], rows[5]["positive"], "Anna Karlsson lives in Uppsala"]
    theirs = reference.SentenceTransformer(str(out), device="cpu").encode(texts)
    assert np.abs(load(out, device="cpu").embed(texts) - theirs).max() < 1e-5


def test_how_near_two_texts_are(base: Base, write: Write) -> None:
    rows = [
        {"sentence1": f"the {one}", "sentence2": f"the {two}", "score": 5.0 * (one == two)}
        for one in (*CITIES, *OTHERS)
        for two in (*CITIES, *OTHERS)
    ]
    file = write("t.jsonl", rows)
    result = finetune(base().folder, file, dev=file, task="similarity", **FAST)
    assert result.metric == "spearman"
    assert result.kept.value > 0.5


@pytest.mark.parametrize("dense", [(), (Dense(torch.linspace(-1, 1, 160).view(5, 32), None),)])
def test_a_long_text_is_the_mean_of_its_windows(
    base: Base, write: Write, dense: tuple[Dense, ...]
) -> None:
    """What is learned is the very vector that `embed` gives."""
    long = "the old river flows " * 60
    rows = [{"anchor": long, "positive": "Paris"}, {"anchor": "bees", "positive": "storm " * 200}]
    dataset, settings = read_data(write("t.jsonl", rows)), settings_for("similarity")
    training = task_named(dataset.task).training(dataset, settings)
    bert = open_fresh(base().folder, training, settings, "cpu")
    bert.sentence = replace(bert.sentence, dense=dense)
    items = [item for sample in training.samples(bert, dataset.gold()) for item in sample]
    batch = batch_of(items).to(bert.device)
    with torch.no_grad():
        vectors = training.vectors(training.outputs(bert.model, batch), training.targets(items))
    texts = [text for example in dataset.examples for text in example.texts]
    plain = embed(bert, texts, normalise=True)
    assert np.abs(vectors.numpy() - plain).max() < 1e-5


def contrast(base: Base, write: Write, rows: list[Any], vectors: Any) -> tuple[float, Any]:
    """The loss of a step of these rows, whose texts have these vectors; and its gradient."""
    dataset = read_data(write("t.jsonl", rows))
    settings = settings_for("similarity", temperature=1.0)
    training = task_named(dataset.task).training(dataset, settings)
    bert = open_fresh(base().folder, training, settings, "cpu")
    items = [item for sample in training.samples(bert, dataset.gold()) for item in sample]
    outputs = torch.tensor(vectors, requires_grad=True)
    loss = training.loss(outputs, batch_of(items).to(bert.device), training.targets(items))
    loss.backward()
    return float(loss.detach()), outputs.grad


def cross(scores: list[float]) -> float:
    """The cross entropy of the first of some scores."""
    return float(-torch.tensor(scores, dtype=torch.float32).log_softmax(0)[0])


def test_duplicates_are_not_negatives(base: Base, write: Write) -> None:
    east, north = [1.0, 0.0], [0.0, 1.0]
    rows = [
        {"anchor": "bees", "positive": "honey"},
        {"anchor": "a bee", "positive": "honey"},  # another anchor of the same text
        {"anchor": "rain", "positive": "storm"},
        {"anchor": "bees", "positive": "wax"},  # another positive of the same anchor
    ]
    vectors = [east, east, east, east, north, north, east, east]
    loss, _ = contrast(base, write, rows, vectors)
    # Of honey, storm, wax: bees knows honey and wax, a bee honey only; so they know the anchors.
    bees = cross([1, 0]) + cross([1, 0])
    a_bee = cross([1, 0, 1]) + cross([1, 0])
    rain = cross([1, 0, 0, 0]) + cross([1, 0, 0, 0])
    wax = cross([1, 0]) + cross([1, 1, 0])
    assert loss == pytest.approx((bees + a_bee + rain + wax) / 2, abs=1e-5)
    same = [{"anchor": "bees", "positive": "honey"}, {"anchor": "honey", "positive": "bees"}]
    loss, gradient = contrast(base, write, same, [east, north, north, east])
    assert loss == 0  # every other text is the anchor itself or its positive
    assert not gradient.abs().any()


def test_all_positives_and_negatives_are_used(base: Base, write: Write) -> None:
    rows = [
        {"anchor": "bees", "positive": ["honey", "wax"], "negatives": ["roof", "wall", "door"]},
        {"anchor": "rain", "positive": ["storm"]},
    ]
    turn = [[math.cos(angle), math.sin(angle)] for angle in (0, 0.3, 0.6, 1, 2, 3, 4, 5)]
    loss, gradient = contrast(base, write, rows, turn)
    bees, honey, wax, *far, rain, storm = (torch.tensor(one) for one in turn)
    expected = 0.0
    for positive in (honey, wax):
        scores = [float(bees @ one) for one in (positive, storm, *far)]
        back = cross([float(positive @ bees), float(positive @ rain)])
        expected += (cross(scores) + back) / 4  # the two share a row's weight
    others = [float(rain @ one) for one in (storm, honey, wax, *far)]
    expected += (cross(others) + cross([float(storm @ rain), float(storm @ bees)])) / 2
    assert loss == pytest.approx(expected, abs=1e-5)
    assert (gradient.abs().sum(1) > 1e-4).all()


def test_batches_without_duplicates(base: Base, write: Write) -> None:
    rows = [{"anchor": f"bees {n}", "positive": f"the river {n % 12}"} for n in range(48)]
    dataset, settings = read_data(write("t.jsonl", rows)), settings_for("similarity", batch_size=8)
    training = task_named(dataset.task).training(dataset, settings)
    bert = open_fresh(base().folder, training, settings, "cpu")
    samples = training.samples(bert, dataset.gold())
    for epoch in (1, 2):
        batches = list(shuffled_batches(training, samples, settings, "epoch", epoch))
        assert [len(batch) for batch in batches] == [8] * 6
        assert {id(one) for batch in batches for one in batch} == {*map(id, samples)}
        repeated = [
            sum(map(len, map(training.keys, batch))) - len(set().union(*map(training.keys, batch)))
            for batch in batches
        ]
        assert sum(repeated[:-1]) == 0
        assert sum(repeated) <= 4  # what is left for the last
    nothing = list(shuffled_batches(Training(dataset, settings), samples, settings, "epoch", 1))
    order = [one for batch in nothing for one in batch]
    assert sorted(map(id, order)) == sorted(map(id, samples))


def test_ranks_of_several_partners(base: Base, write: Write) -> None:
    """A partner of the same anchor in another row, and the anchor itself, do not compete."""
    rows = [{"anchor": "bees", "positive": ["storm", "bees"]}, {"anchor": "bees", "positive": "a"}]
    rows += [{"anchor": "storm", "positive": ["bees"]}]
    dataset = read_data(write("t.jsonl", rows))
    assert partner_ranks(load(base().folder, device="cpu"), dataset.examples).tolist()[:2] == [1, 1]


def test_mistakes(base: Base, write: Write) -> None:
    single = write("s.jsonl", [{"text": "a", "score": 1}, {"text": "b", "score": 2}])
    with pytest.raises(BertsmithError, match="similarity needs two texts"):
        finetune(base().folder, single, task="similarity", hold_out=0)
