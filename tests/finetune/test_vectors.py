"""Similarity: vectors that `sentence-transformers` makes just so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith import BertsmithError, load
from bertsmith.checkpoint.dense import Dense
from bertsmith.data import read_data
from bertsmith.finetune import finetune, settings_for
from bertsmith.finetune.batches import batch_of
from bertsmith.finetune.setup import open_fresh
from bertsmith.tasks.embedding import embed
from bertsmith.tasks.registry import task_named
from finetune.conftest import CITIES, FAST, OTHERS, Write
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
    batch = batch_of(items, bert.device)
    with torch.no_grad():
        vectors = training.vectors(training.outputs(bert.model, batch), training.targets(items))
    texts = [text for example in dataset.examples for text in example.texts]
    plain = embed(bert, texts, normalise=True)
    assert np.abs(vectors.numpy() - plain).max() < 1e-5


def test_mistakes(base: Base, write: Write) -> None:
    single = write("s.jsonl", [{"text": "a", "score": 1}, {"text": "b", "score": 2}])
    with pytest.raises(BertsmithError, match="similarity needs two texts"):
        finetune(base().folder, single, task="similarity", hold_out=0)
