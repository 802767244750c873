"""Scores of weighted examples are those of a list in which each is repeated as often."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as reference

from bertsmith.metrics import resample, resample_pair
from bertsmith.metrics.answers import question_scores
from bertsmith.metrics.calibration import calibration_error
from bertsmith.metrics.entities import tag_scores
from bertsmith.metrics.labels import label_scores, multilabel_scores
from bertsmith.metrics.numbers import number_scores

Scorer = Callable[[Any], dict[str, float]]
LABELS = st.sampled_from("abc")
TAGS = st.lists(st.sampled_from(["O", "B-X", "I-X", "B-Y"]), min_size=3, max_size=3)
SETS = st.sets(LABELS)
NUMBERS = st.floats(-10, 10).map(lambda x: round(x, 2))
TEXTS = st.sampled_from(["the cat", "a dog", "Cat!", ""])


def rows(gold: st.SearchStrategy[Any], said: st.SearchStrategy[Any]) -> Any:
    one = st.tuples(gold, said, st.integers(0, 3))
    return st.lists(one, min_size=1, max_size=12).filter(lambda found: any(w for _, _, w in found))


def agree(made: Callable[[Sequence[Any], Sequence[Any]], Scorer], found: list[Any]) -> None:
    gold, said, weights = ([row[side] for row in found] for side in range(3))
    often = [(g, s) for g, s, w in found for _ in range(w)]
    weighted = made(gold, said)(np.array(weights, dtype=float))
    repeated = made([g for g, _ in often], [s for _, s in often])(None)
    assert weighted.keys() == repeated.keys()
    for name, value in weighted.items():
        assert value == pytest.approx(repeated[name], abs=1e-9, nan_ok=True)


@given(rows(LABELS, LABELS))
def test_labels(found: list[Any]) -> None:
    agree(lambda gold, said: label_scores(gold, said, "b"), found)
    gold, said = ([row[side] for row in found] for side in (0, 1))
    scores = label_scores(gold, said)(None)
    assert scores["accuracy"] == pytest.approx(reference.accuracy_score(gold, said))
    assert scores["macro_f1"] == pytest.approx(reference.f1_score(gold, said, average="macro"))
    assert scores["mcc"] == pytest.approx(reference.matthews_corrcoef(gold, said))


@given(rows(SETS, SETS))
def test_several_labels(found: list[Any]) -> None:
    agree(multilabel_scores, found)


@given(rows(TAGS, TAGS))
def test_tags(found: list[Any]) -> None:
    agree(lambda gold, said: tag_scores(gold, said, True), found)


@given(rows(st.lists(TEXTS, max_size=2), TEXTS))
def test_answers(found: list[Any]) -> None:
    if any(w and not g for g, _, w in found):  # the rules of v2.0 hold with and without weights
        agree(question_scores, found)


@given(rows(NUMBERS, NUMBERS))
def test_numbers(found: list[Any]) -> None:
    agree(number_scores, found)
    gold, said = ([row[side] for row in found] for side in (0, 1))
    scores = number_scores(gold, said)(None)
    if len(set(gold)) > 1 and len(set(said)) > 1:
        assert scores["pearson"] == pytest.approx(stats.pearsonr(gold, said)[0], abs=1e-6)
        assert scores["spearman"] == pytest.approx(stats.spearmanr(gold, said)[0], abs=1e-6)
    else:
        assert math.isnan(scores["pearson"])


@given(rows(st.floats(0, 1), st.booleans()))
def test_calibration(found: list[Any]) -> None:
    agree(
        lambda sure, right: (
            lambda weights: {"error": calibration_error(np.array(sure), np.array(right), weights)}
        ),
        found,
    )


def test_draws() -> None:
    right = np.arange(200) % 4 > 0
    summary = resample(lambda weights: float(np.average(right, weights=weights)), 200)
    assert summary.mean == 0.75
    assert summary.low < 0.75 < summary.high
    assert summary.high - summary.low == pytest.approx(
        2 * 1.96 * math.sqrt(0.75 / 4 / 200), rel=0.2
    )
    nothing = resample(lambda weights: math.nan, 3)
    assert math.isnan(nothing.low)
    better = resample_pair(
        lambda weights: float(np.average(right, weights=weights)),
        lambda weights: float(np.average(right | True, weights=weights)),
        200,
    )
    assert better.difference == 0.25
    assert better.p_value < 0.01
