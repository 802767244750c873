"""Reranking: rows with passages, three losses, rankings as others compute them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import ndcg_score

from bertsmith import BertsmithError, load
from bertsmith.finetuning import finetune
from bertsmith.tasks.evaluate import evaluate
from bertsmith.tasks.read import open_data, read_data
from bertsmith.tasks.registry import task_named, task_of
from bertsmith.tasks.reranking.reading import Passages
from bertsmith.tasks.reranking.task import RULES, with_others
from bertsmith.tasks.task import Prediction
from finetuning.conftest import CITIES, FAST, OTHERS, Write
from finetuning.test_words import opened
from tasks.models import Maker

TASK = task_named("reranking")


def ranked(count: int = 24) -> list[dict[str, Any]]:
    """Queries whose passage has a city in it, among others."""
    rows = []
    for number in range(count):
        far = [f"the old river flows {OTHERS[(number + n) % 3]} number {n}" for n in range(3)]
        near = f"the old river flows {CITIES[number % 3]} number {number % 7}"
        rows.append({"query": f"where to go {number}", "positives": [near], "negatives": far})
    return rows


def graded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same, a row for each passage, those of one query apart from one another."""
    return [
        {"query": row["query"], "passage": text, "relevance": grade}
        for side, grade in (("negatives", 0), ("positives", 2))
        for row in rows
        for text in row[side]
    ]


def test_rows_of_lists_are_read(write: Write) -> None:
    dataset = read_data(write("ranked.jsonl", ranked(3)))
    assert (dataset.task, dataset.guessed) == ("reranking", "it has queries with passages")
    first = dataset.examples[0]
    assert first.passages[0] == "the old river flows Prague number 0"
    assert first.grades == (1.0, 0.0, 0.0, 0.0)


def test_numbered_columns_are_read(tmp_path: Path) -> None:
    path = tmp_path / "ranked.csv"
    path.write_text("query,positive,negative_1,negative_2\na,b,c,d\ne,f,g,\n")
    first, second = read_data(path).examples
    assert (first.passages, first.grades) == (("b", "c", "d"), (1.0, 0.0, 0.0))
    assert second.passages[:2] == ("f", "g")


def test_graded_rows_of_one_query_are_one_example(write: Write) -> None:
    dataset = read_data(write("graded.jsonl", graded(ranked(3))))
    assert dataset.task == "reranking"
    assert len(dataset.examples) == 3
    assert dataset.examples[0].grades == (0.0, 0.0, 0.0, 2.0)


def test_a_grade_that_is_no_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "graded.csv"
    path.write_text("query,passage,grade\na,b,1\nc,d,good\n")
    with pytest.raises(BertsmithError, match=r"line 3: 'grade' is 'good', not a finite number"):
        read_data(path)


def test_rows_to_predict_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("query,passage\na,b\na,c\n")
    (portion,) = open_data(path, "reranking").portions()
    assert [one.passages for one in portion.examples] == [("b",), ("c",)]


def test_losses_are_those_written_out() -> None:
    scores = torch.tensor([[2.0, 0.5, -1.0], [0.3, 0.2, -1e4]])
    grades = torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.0, -1.0]])
    logs = scores[0].log_softmax(0)
    listwise = -(logs[0] * 2 / 3 + logs[1] / 3)
    assert float(RULES["listwise"](scores, grades)[0]) == pytest.approx(float(listwise))
    pairs = [(2.0, 0.5), (2.0, -1.0), (0.5, -1.0)]
    pairwise = np.mean([np.log1p(np.exp(low - high)) for high, low in pairs])
    assert float(RULES["pairwise"](scores, grades)[0]) == pytest.approx(float(pairwise))
    assert float(RULES["pairwise"](scores, grades)[1]) == pytest.approx(np.log1p(np.exp(0.1)))
    chances = scores[1, :2].sigmoid()
    pointwise = -((1 - chances[0]).log() + chances[1].log()) / 2
    assert float(RULES["pointwise"](scores, grades)[1]) == pytest.approx(float(pointwise))


def test_queries_without_negatives_get_some() -> None:
    where: Any = None
    only = [Passages(f"q{n}", (f"p{n}",), (1.0,), where) for n in range(9)]
    told = with_others(only)
    assert all(one.grades == (1.0, 0.0, 0.0, 0.0, 0.0) for one in told)
    assert all(len(set(one.passages)) == 5 for one in told)
    assert told == with_others(only)  # the same each time


def test_scores_are_those_of_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    where: Any = None
    for _ in range(20):
        grades = draw.integers(0, 4, 15).astype(float)
        grades[0] = 3
        scores = draw.normal(size=15)
        example = Passages("q", ("p",) * 15, tuple(grades), where)
        theirs = ndcg_score([grades], [scores], k=10)
        assert TASK.correctness(example, tuple(scores)) == pytest.approx(theirs)


def test_equal_scores_do_not_help() -> None:
    where: Any = None
    example = Passages("q", ("a", "b"), (1.0, 0.0), where)
    assert TASK.correctness(example, (0.5, 0.5)) == pytest.approx(1 / np.log2(3))


@pytest.mark.parametrize("loss", ["listwise", "pairwise", "pointwise"])
def test_a_tiny_model_learns_and_others_open_it(
    base: Maker, write: Write, tmp_path: Path, loss: str
) -> None:
    file, out = write("ranked.jsonl", ranked()), tmp_path / "reranker"
    finetune(base().folder, file, out, dev=file, device="cpu", loss=loss, **FAST)
    bert = load(out, device="cpu")
    assert task_of(bert) is TASK
    assert evaluate(bert, read_data(file)).scores["ndcg_at_10"] > 0.99
    texts = ranked()[0]["negatives"] + ranked()[0]["positives"]
    best = bert.rerank("where to go", texts)
    assert best[0].index == 3
    assert best[0].text == texts[3]
    from sentence_transformers import CrossEncoder

    theirs = CrossEncoder(str(out), device="cpu").predict([("where to go", text) for text in texts])
    ours = [one.score for one in sorted(best, key=lambda one: one.index)]
    assert ours == pytest.approx(theirs.tolist(), abs=1e-5)


def test_of_a_long_passage_the_best_window_counts(
    base: Maker, write: Write, tmp_path: Path
) -> None:
    file, out = write("ranked.jsonl", ranked()), tmp_path / "reranker"
    finetune(base().folder, file, out, dev=file, device="cpu", **FAST)
    bert = load(out, device="cpu")
    short = "the old river flows Paris number 1"
    long = " ".join(["the old river flows storm number 2"] * 40) + f" {short}"
    one, two = (bert.rerank("where to go", [text])[0].score for text in (short, long))
    assert two > 0.5 * one


def test_an_unknown_loss_is_refused(base: Maker, write: Write) -> None:
    with pytest.raises(BertsmithError, match="listwise, pairwise, pointwise"):
        finetune(base().folder, write("ranked.jsonl", ranked()), device="cpu", loss="triplet")


def test_losses_of_a_batch_are_those_of_its_queries(base: Maker, write: Write) -> None:
    """The grid of passages does not mix queries."""
    from bertsmith.finetuning.batches import batch_of

    bert, training, samples = opened(base().folder, write("ranked.jsonl", ranked(5)))
    items = [item for sample in samples for item in sample]

    def loss(some: Any) -> float:
        batch = batch_of(some).to(bert.device)
        with torch.no_grad():
            outputs = training.outputs(bert.model, batch)
            return float(training.loss(outputs, batch, training.targets(some)))

    assert loss(items) == pytest.approx(sum(loss([item]) for item in items), rel=1e-5)


def test_a_page_shows_the_order() -> None:
    where: Any = None
    example = Passages("q", ("far", "near"), (0.0, 1.0), where)
    shown = TASK.display(example, Prediction((0.9, 0.1), 0.9, {}))
    assert [one.text for one in shown.passages] == ["q", "far", "near"]
