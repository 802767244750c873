"""Similarity: vectors that `sentence-transformers` makes just so."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith import BertsmithError, load
from bertsmith.checkpoint.dense import Dense
from bertsmith.finetuning import finetune, settings_for
from bertsmith.finetuning.batches import TaskBatch, TaskLoss, batch_of, shuffled_batches
from bertsmith.finetuning.setup import open_fresh
from bertsmith.foreign import read_json
from bertsmith.tasks.embedding import embed
from bertsmith.tasks.read import read_data
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.similarity.task import partner_ranks
from bertsmith.tasks.training import Training
from finetuning.conftest import CITIES, FAST, OTHERS, Write
from tasks.models import Made, Maker


def test_texts_that_belong_together(base: Maker, write: Write, tmp_path: Path) -> None:
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


def test_how_near_two_texts_are(base: Maker, write: Write) -> None:
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
    base: Maker, write: Write, dense: tuple[Dense, ...]
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
        means = training.means(training.outputs(bert.model, batch), training.targets(items))
        vectors = torch.nn.functional.normalize(means, dim=-1)
    texts = [text for example in dataset.examples for text in example.texts]
    plain = embed(bert, texts, normalise=True)
    assert np.abs(vectors.numpy() - plain).max() < 1e-5


def contrast(base: Maker, write: Write, rows: list[Any], vectors: Any) -> tuple[float, Any]:
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


def test_duplicates_are_not_negatives(base: Maker, write: Write) -> None:
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


def test_positives_of_other_steps_are_not_negatives(base: Maker, write: Write) -> None:
    """The third row is in another step; still, wax belongs to bees, and is not their negative."""
    rows = [
        {"anchor": "bees", "positive": "honey"},
        {"anchor": "candles", "positive": "wax"},
        {"anchor": "bees", "positive": "wax"},
    ]
    dataset, settings = read_data(write("t.jsonl", rows)), settings_for("similarity")
    training = task_named(dataset.task).training(dataset, settings)
    bert = open_fresh(base().folder, training, settings, "cpu")
    items = [item for sample in training.samples(bert, dataset.gold()[:2]) for item in sample]
    assert training.targets(items)["known"].tolist() == [[True, True], [False, True]]


def test_all_positives_and_negatives_are_used(base: Maker, write: Write) -> None:
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


def test_batches_without_duplicates(base: Maker, write: Write) -> None:
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


def test_ranks_of_several_partners(base: Maker, write: Write) -> None:
    """A partner of the same anchor in another row, and the anchor itself, do not compete."""
    rows = [{"anchor": "bees", "positive": ["storm", "bees"]}, {"anchor": "bees", "positive": "a"}]
    rows += [{"anchor": "storm", "positive": ["bees"]}]
    dataset = read_data(write("t.jsonl", rows))
    assert partner_ranks(load(base().folder, device="cpu"), dataset.examples).tolist()[:2] == [1, 1]


def test_mistakes(base: Maker, write: Write) -> None:
    single = write("s.jsonl", [{"text": "a", "score": 1}, {"text": "b", "score": 2}])
    with pytest.raises(BertsmithError, match="similarity needs two texts"):
        finetune(base().folder, single, task="similarity", hold_out=0)


def rows_with_scores(count: int = 24) -> list[dict[str, Any]]:
    words = [*CITIES, *OTHERS, "daughter", "letter", "garden", "spaniel", "roof", "mayor"]
    return [
        {
            "anchor": f"the old {words[n % len(words)]} {n}",
            "positive": [f"river {words[n % len(words)]}", f"a {words[n % len(words)]} home"],
            "negative": [f"the {words[(n + 3) % len(words)]}"],
            "scores": [4.0, 2.0, -3.0],
        }
        for n in range(count)
    ]


def learner_of(made: Made, file: Path, **given: Any) -> tuple[Any, Any, Training]:
    """A loaded model, the batch of all rows, and how they are learned."""
    data = read_data(file, "similarity")
    settings = settings_for("similarity", dropout=0.0, **given)
    training = task_named("similarity").training(data, settings)
    bert = open_fresh(made.folder, training, settings, "cpu")
    items = [item for sample in training.samples(bert, data.examples) for item in sample]
    weight = float(len(items))
    return bert, TaskBatch(batch_of(items), training.targets(items), weight, 0), training


def gradients_of(bert: Any, training: Training, example: TaskBatch, cached: int) -> Any:
    bert.model.train()
    bert.model.zero_grad()
    torch.manual_seed(1)
    loss, _ = TaskLoss(bert.model, training, cached=cached)(example, {})
    loss.backward()
    grads = {n: p.grad.clone() for n, p in bert.model.named_parameters() if p.grad is not None}
    return float(loss.detach()), grads


def test_cached_gradients_are_those_of_one_pass(base: Maker, write: Write) -> None:
    file = write("t.jsonl", rows_with_scores())
    bert, example, training = learner_of(base(), file, loss="contrastive", matryoshka="8,16")
    assert training.together
    want, plain = gradients_of(bert, training, example, 0)
    total = example.batch.layout.total
    for budget in (total // 5, 30, 1):
        loss, cached = gradients_of(bert, training, example, budget)
        assert loss == pytest.approx(want, abs=1e-5)
        assert cached.keys() == plain.keys()
        for name, gradient in plain.items():
            assert torch.allclose(cached[name], gradient, atol=1e-5), name


def test_a_budget_trains_as_one_pass_does(base: Maker, write: Write) -> None:
    file = write("t.jsonl", rows_with_scores())
    options: Any = {**FAST, "epochs": 2, "loss": "contrastive", "dropout": 0.0}
    losses = [
        finetune(base().folder, file, dev=file, budget=budget, **options).kept.history.losses
        for budget in (0, 64)
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


def test_matryoshka_is_the_mean_over_widths(base: Maker, write: Write, tmp_path: Path) -> None:
    file, out = write("t.jsonl", rows_with_scores()), tmp_path / "out"
    for loss in ("contrastive", "margin"):
        bert, example, training = learner_of(base(), file, loss=loss, matryoshka="16,8")
        outputs = training.outputs(bert.model, example.batch)
        means = training.means(outputs, example.targets)
        alone = [
            training.vector_loss(
                torch.nn.functional.normalize(means[:, :w], dim=-1), example.targets
            )
            for w in (8, 16, means.shape[1])
        ]
        whole = training.loss(outputs, example.batch, example.targets)
        assert float(whole.detach()) == pytest.approx(float(sum(alone).detach()) / 3, rel=1e-5)
    finetune(base().folder, file, out, dev=file, matryoshka="16,8", **FAST | {"epochs": 1})
    assert read_json(out / "config.json")["matryoshka_dimensions"] == [8, 16]
    model = load(out, device="cpu")
    full, short = (model.embed(["a river", "home"], normalise=True, width=w) for w in (None, 8))
    want = full[:, :8] / np.linalg.norm(full[:, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(short, want, atol=1e-6)
    with pytest.raises(BertsmithError, match="width must be from 1 to"):
        model.embed("a river", width=10_000)
    finetune(out, file, tmp_path / "again", dev=file, **FAST | {"epochs": 1})
    assert "matryoshka_dimensions" not in read_json(tmp_path / "again" / "config.json")


def test_margins_of_a_teacher(base: Maker, write: Write) -> None:
    """The loss is that of the formula, and the margins are learned."""
    file = write("t.jsonl", rows_with_scores())
    bert, example, training = learner_of(base(), file, temperature=0.1)
    means = training.means(training.outputs(bert.model, example.batch), example.targets)
    vectors = torch.nn.functional.normalize(means, dim=-1)
    want = 0.0
    for place in range(0, len(vectors), 4):
        anchor, *near, far = vectors[place : place + 4]
        for one, margin in zip(near, (7.0, 5.0), strict=True):
            want += float(((anchor @ one - anchor @ far) / 0.1 - margin) ** 2) / 2
    loss = training.loss(
        training.outputs(bert.model, example.batch), example.batch, example.targets
    )
    assert float(loss) == pytest.approx(want, rel=1e-4)
    result = finetune(base().folder, file, dev=file, temperature=0.1, **FAST)
    losses = result.kept.history.losses
    assert losses[-1] < losses[0] / 2


def test_anchors_are_queries(base: Maker, write: Write) -> None:
    """The model's prompts for queries and documents are used in training."""
    file = write("t.jsonl", rows_with_scores(4))
    data = read_data(file, "similarity")
    for loss in ("contrastive", "margin"):
        settings = settings_for("similarity", loss=loss)
        training = task_named("similarity").training(data, settings)
        bert = open_fresh(base().folder, training, settings, "cpu")
        prompts = {"query": "garden ", "document": "home "}
        bert.sentence = replace(bert.sentence, more={"prompts": prompts})
        [item] = training.samples(bert, data.examples)[0]
        texts = [bert.tokenizer.decode(window.ids) for window in item.windows]
        assert ["garden" in texts[0], *("home" in text for text in texts[1:])] == [True] * 4


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"scores": [1.0]}, {}, "'scores' is not a list of 3 numbers"),
        ({"scores": [1.0, "x", 2.0]}, {}, "'scores' is not a list of 3 numbers"),
        ({"scores": None}, {"loss": "margin"}, "no row has a negative and a teacher's scores"),
        ({}, {"matryoshka": "8,x"}, "matryoshka must be widths"),
        ({}, {"matryoshka": "0"}, "matryoshka must be widths"),
        ({}, {"matryoshka": "8,100000"}, "not less than the width of the vectors"),
        ({}, {"loss": "cosine"}, "no loss 'cosine'; known: contrastive, margin"),
    ],
)
def test_mistakes_in_training_for_retrieval(
    base: Maker, write: Write, change: Any, options: Any, message: str
) -> None:
    file = write("t.jsonl", [row | change for row in rows_with_scores(6)])
    with pytest.raises(BertsmithError, match=message):
        finetune(base().folder, file, dev=file, **FAST | options)
