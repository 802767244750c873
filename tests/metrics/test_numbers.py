"""Correlations, against scipy on random inputs."""

import math
import warnings

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as reference

from bertsmith.metrics import pearson, spearman
from bertsmith.metrics.numbers import number_scores, ranks

floats = st.floats(-1e6, 1e6, allow_nan=False).map(lambda value: round(value, 3))
few = st.integers(0, 4).map(float)  # many ties, as human scores have them
rows = st.lists(st.tuples(floats, floats) | st.tuples(few, few), min_size=2)


@given(rows)
@settings(max_examples=80, deadline=None)
def test_equal_to_scipy(pairs: list[tuple[float, float]]) -> None:
    gold, predicted = [g for g, _ in pairs], [p for _, p in pairs]
    assert ranks(gold).tolist() == stats.rankdata(gold).tolist()
    assert number_scores(gold, predicted)(None)["mean_squared_error"] == pytest.approx(
        reference.mean_squared_error(gold, predicted)
    )
    assume(len(set(gold)) > 1 and len(set(predicted)) > 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = stats.pearsonr(gold, predicted).statistic, stats.spearmanr(gold, predicted)[0]
    assert pearson(gold, predicted) == pytest.approx(expected[0], abs=1e-9)
    assert spearman(gold, predicted) == pytest.approx(expected[1], abs=1e-9)


def test_constant_sides_are_not_a_number() -> None:
    assert math.isnan(pearson([1, 1, 1], [1, 2, 3]))
    assert math.isnan(spearman([1, 2, 3], [5, 5, 5]))
    assert math.isnan(pearson([1], [2]))


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1.0, 1e200])
def test_any_scale(scale: float) -> None:
    assert pearson([0, scale, 3 * scale], [1, 2, 4]) == pytest.approx(1.0)
