"""Multi-Bootstrap against simulations of known variance, and Holm's correction."""

import math

import numpy as np
import pytest

from bertsmith.errors import BertsmithError
from bertsmith.metrics import holm, multi_bootstrap
from bertsmith.metrics.multi import Score


def mean_of(values: np.ndarray) -> Score:  # type: ignore[type-arg]
    return lambda weights: float(weights @ values / weights.sum())


def simulated(seeds: int, examples: int, number: int, lead: float = 0.0) -> list[Score]:
    """Scores of examples: a deviation of each seed (0.02) plus one of each example (0.3)."""
    random = np.random.default_rng([seeds, number])
    common = np.random.default_rng(number).normal(0, 0.3, examples)
    return [mean_of(lead + common + shift) for shift in random.normal(0, 0.02, seeds)]


def test_variance_is_the_known_one() -> None:
    seeds, examples, ratios = 12, 400, []
    known = 0.02**2 / seeds * 11 / 9 + 0.3**2 / examples  # of t with 11 degrees: 11 / 9
    for number in range(80):
        procedure = {"a": simulated(seeds, examples, number)}
        drawn = multi_bootstrap(procedure, examples, draws=100, seed=number)
        ratios.append(drawn.draws["a"].var() / known)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("seeds", [2, 3, pytest.param(8, marks=pytest.mark.slow)])
def test_intervals_hold_the_truth(seeds: int) -> None:
    held = 0
    for number in range(100):
        procedure = {"a": simulated(seeds, 3000, number)}
        low, high = multi_bootstrap(procedure, 3000, draws=200, seed=number).interval("a")
        held += low <= 0 <= high
    assert 89 <= held <= 100


def test_all_correct_is_not_certain() -> None:
    drawn = multi_bootstrap({"a": [mean_of(np.ones(20))] * 2}, 20, draws=20)
    assert drawn.interval("a") == pytest.approx((0.8316, 1.0), abs=1e-4)


def test_examples_are_paired() -> None:
    """Two procedures with the same examples differ by their seeds alone."""
    pair = {"a": simulated(5, 50, 1), "b": simulated(4, 50, 1, lead=0.2)}
    drawn = multi_bootstrap(pair, 50, draws=200)
    test = drawn.compare("a", "b")
    assert test.p_value < 0.02
    assert test.low is not None
    assert test.high is not None
    assert 0 < test.low < test.difference < test.high < 0.3
    assert drawn.seeds == {"a": 5, "b": 4}
    assert drawn.compare("b", "a").difference == -test.difference


def test_one_seed_draws_examples_only() -> None:
    drawn = multi_bootstrap({"a": simulated(1, 50, 1)}, 50, draws=50)
    assert np.array_equal(drawn.draws["a"], drawn.example_draws["a"])
    assert drawn.deviations == {"a": 0.0}


def test_seeds_that_are_needed() -> None:
    """With the number that is named, 80 % of studies detect the difference."""
    lead, sigma = 0.02, 0.02
    pair = {
        "a": [mean_of(np.full(10, shift)) for shift in (-sigma, 0, sigma)],
        "b": [mean_of(np.full(10, lead + shift)) for shift in (-sigma, 0, sigma)],
    }
    needed = multi_bootstrap(pair, 10, draws=20).seeds_needed("a", "b")
    assert needed == math.ceil(2 * sigma**2 * (1.96 + 0.84) ** 2 / lead**2) == 16
    corrected = multi_bootstrap(pair, 10, draws=20).seeds_needed("a", "b", 0.05 / 28)
    assert corrected == math.ceil(2 * sigma**2 * (3.124 + 0.84) ** 2 / lead**2) == 32
    random = np.random.default_rng(0)
    gaps = random.normal(lead, math.sqrt(2 * sigma**2 / needed), 4000)
    detected = np.mean(np.abs(gaps) > 1.96 * math.sqrt(2 * sigma**2 / needed))
    assert detected == pytest.approx(0.8, abs=0.03)
    noisy = np.random.default_rng(1)
    small = {name: [mean_of(noisy.normal(0, 1, 20))] * 2 for name in "ab"}
    assert math.isinf(multi_bootstrap(small, 20, draws=50).seeds_needed("a", "b"))


def test_nothing_to_draw_from() -> None:
    with pytest.raises(BertsmithError, match="at least one seed"):
        multi_bootstrap({"a": []}, 3)


def test_holm() -> None:
    assert holm([]) == []
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
