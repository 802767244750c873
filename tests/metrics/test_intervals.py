"""Intervals: against scipy's bootstrap, reproducible, and honest about coverage."""

import numpy as np
import pytest
from scipy import stats

from bertsmith.errors import BertsmithError
from bertsmith.metrics import accuracy, bootstrap, mcc, over_seeds, pearson


def test_seeds_are_summed_up() -> None:
    scores = [0.81, 0.84, 0.86, 0.83, 0.80]
    found = over_seeds(scores)
    assert found.mean == pytest.approx(np.mean(scores))
    assert found.median == 0.83
    assert found.deviation == pytest.approx(np.std(scores, ddof=1))
    expected = stats.bootstrap(
        (scores,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1)
    ).confidence_interval
    assert found.low == pytest.approx(expected.low, abs=2e-3)
    assert found.high == pytest.approx(expected.high, abs=2e-3)
    assert found == over_seeds(scores)
    assert over_seeds(scores, draws=9, seed=1) != over_seeds(scores, draws=9)
    one = over_seeds([0.5])
    assert (one.mean, one.median, one.deviation, one.low, one.high) == (0.5, 0.5, 0.0, 0.5, 0.5)


def test_a_metric_with_its_interval() -> None:
    random = np.random.default_rng(0)
    gold = random.integers(0, 2, 400)
    predicted = np.where(random.random(400) < 0.8, gold, 1 - gold)
    found = bootstrap(accuracy, gold.tolist(), predicted.tolist(), draws=2000)
    expected = stats.bootstrap(
        (gold == predicted,),
        np.mean,
        method="percentile",
        n_resamples=5000,
        rng=np.random.default_rng(1),
    )
    assert found.mean == found.median == pytest.approx((gold == predicted).mean())
    assert found.low == pytest.approx(expected.confidence_interval.low, abs=0.01)
    assert found.high == pytest.approx(expected.confidence_interval.high, abs=0.01)
    assert found.deviation == pytest.approx(float(expected.standard_error), rel=0.1)
    wider = bootstrap(accuracy, gold.tolist(), predicted.tolist(), confidence=0.99)
    assert wider.low < found.low < found.mean < found.high < wider.high
    assert bootstrap(mcc, gold.tolist(), predicted.tolist(), draws=50).mean > 0.5


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(2)
    inside = 0
    for seed in range(200):
        right = (random.random(150) < 0.7).tolist()
        found = bootstrap(accuracy, [True] * 150, right, confidence=0.9, draws=200, seed=seed)
        inside += found.low <= 0.7 <= found.high
    assert 160 <= inside <= 197  # of 200, where 180 are expected


def test_draws_on_which_a_metric_is_undefined_are_left_out() -> None:
    found = bootstrap(pearson, [1.0, 2.0, 3.0], [1.0, 2.0, 4.0], draws=200)
    assert found.low <= found.mean <= found.high


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda: over_seeds([]), "no scores"),
        (lambda: bootstrap(accuracy, [1], [1, 2]), "columns of equal length"),
        (lambda: bootstrap(accuracy, [], []), "non-empty columns"),
        (lambda: bootstrap(accuracy, [1], [1], draws=0), "at least 1"),
        (lambda: over_seeds([1.0], confidence=95), "between 0 and 1"),
        (lambda: bootstrap(pearson, [1.0, 1.0], [1.0, 2.0]), "NaN"),
    ],
)
def test_mistakes(call, fault: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BertsmithError, match=fault):
        call()
