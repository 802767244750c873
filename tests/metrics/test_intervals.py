"""Intervals: against scipy, reproducible, and honest about coverage."""

from functools import partial

import numpy as np
import pytest
from scipy import stats

from bertsmith.errors import BertsmithError
from bertsmith.metrics import accuracy, bootstrap, bounds, mcc, over_seeds, pearson, resample
from bertsmith.metrics.intervals import t_quantile


def test_seeds_are_summed_up() -> None:
    scores = [0.81, 0.84, 0.86, 0.83, 0.80]
    found = over_seeds(scores)
    assert found.mean == pytest.approx(np.mean(scores))
    assert found.median == 0.83
    assert found.deviation == pytest.approx(np.std(scores, ddof=1))
    expected = stats.ttest_1samp(scores, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    one = over_seeds([0.5])
    assert (one.mean, one.median, one.deviation) == (0.5, 0.5, 0.0)
    assert np.isnan([one.low, one.high]).all()  # another seed could have scored anything


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 9, 30, 999])
def test_quantiles_are_those_of_scipy(degrees: int) -> None:
    for confidence in (0.5, 0.95, 0.999):
        expected = stats.t.ppf((1 + confidence) / 2, degrees)
        assert t_quantile(confidence, degrees) == pytest.approx(expected)


def test_equal_seeds_have_no_interval() -> None:
    for scores in ([0.8], [1.0, 1.0, 1.0]):
        found = over_seeds(scores)
        assert (found.mean, found.deviation) == (scores[0], 0.0)
        assert np.isnan([found.low, found.high]).all()


def test_an_interval_stays_in_the_range_of_its_metric() -> None:
    scores = [0.55, 1.0]
    whole = over_seeds(scores)
    assert (whole.low, whole.high) == pytest.approx((-2.0839, 3.6339), abs=1e-4)
    for metric, expected in (("accuracy", (0, 1)), ("macro_f1", (0, 1)), ("mcc", (-1, 1))):
        cut = over_seeds(scores, bounds=bounds(metric))
        assert (cut.low, cut.high) == expected
        assert (cut.mean, cut.deviation) == (whole.mean, whole.deviation)


@pytest.mark.parametrize("seeds", [2, 5])
def test_intervals_over_seeds_hold_the_truth(seeds: int) -> None:
    random = np.random.default_rng(0)
    found = [over_seeds(random.normal(0.8, 0.01, seeds).tolist()) for _ in range(400)]
    assert 370 <= sum(one.low <= 0.8 <= one.high for one in found) <= 390  # 380 are expected


@pytest.mark.parametrize("count", [1, 20, 100])
def test_all_correct_is_not_certain(count: int) -> None:
    """The exact interval of Clopper and Pearson."""
    expected = stats.binomtest(count, count).proportion_ci(0.95, "exact")
    for right, one in ((np.ones(count), expected), (np.zeros(count), None)):
        low, high = (one.low, one.high) if one else (0.0, 1 - expected.low)
        drawn = resample(partial(weighted, right), count, draws=50)
        assert (drawn.low, drawn.high) == pytest.approx((low, high))
    found = bootstrap(accuracy, [1] * count, [1] * count, draws=50)
    assert (found.low, found.high) == pytest.approx((expected.low, 1.0))


def weighted(right: np.ndarray, weights: np.ndarray) -> float:  # type: ignore[type-arg]
    return float(weights @ right / weights.sum())


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
