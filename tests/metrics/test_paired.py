"""Paired tests: against scipy, and right about models that are the same or clearly not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bertsmith.errors import BertsmithError
from bertsmith.metrics import accuracy, f1, mcc, mcnemar, paired_bootstrap, permutation

rights = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=300)


@given(rights)
@settings(max_examples=80, deadline=None)
def test_mcnemar_is_the_binomial_test(rows: list[tuple[bool, bool]]) -> None:
    first, second = [a for a, _ in rows], [b for _, b in rows]
    won, lost = sum(b > a for a, b in rows), sum(a > b for a, b in rows)
    expected = stats.binomtest(won, won + lost).pvalue if won + lost else 1.0
    found = mcnemar(first, second)
    assert found.p_value == pytest.approx(expected)
    assert found.difference == pytest.approx((won - lost) / len(rows))


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=8),
)
@settings(max_examples=40, deadline=None)
def test_few_examples_are_exchanged_in_every_way(rows: list[tuple[int, int]]) -> None:
    first, second = [float(a) for a, _ in rows], [float(b) for _, b in rows]

    def lead(one, other, axis):  # type: ignore[no-untyped-def]
        return np.mean(other - one, axis=axis)

    expected = stats.permutation_test(
        (first, second), lead, permutation_type="samples", vectorized=True, n_resamples=np.inf
    )
    assert permutation(first, second).p_value == pytest.approx(min(1.0, expected.pvalue))
    assert permutation(first, second).difference == pytest.approx(expected.statistic)


def test_many_examples_are_exchanged_at_random() -> None:
    random = np.random.default_rng(0)
    first = random.random(200)
    second = first + random.normal(0.01, 0.08, 200)
    found = permutation(first.tolist(), second.tolist())
    assert found.p_value == pytest.approx(stats.ttest_rel(second, first).pvalue, abs=0.02)
    assert found == permutation(first.tolist(), second.tolist())
    assert permutation([0.0] * 50, [1.0] * 50).p_value < 1e-3
    assert permutation([1.0] * 50, [1.0] * 50).p_value == 1.0


def test_no_difference_on_few_examples_is_not_certain() -> None:
    found = paired_bootstrap(accuracy, [1] * 20, [1] * 20, [1] * 20, draws=50)
    assert (found.difference, found.p_value) == (0.0, 1.0)
    assert (found.low, found.high) == pytest.approx((-0.1684, 0.1684), abs=1e-4)


@pytest.mark.parametrize("metric", [accuracy, f1, mcc])
def test_bootstrap_tells_better_from_same(metric) -> None:  # type: ignore[no-untyped-def]
    random = np.random.default_rng(0)
    gold = random.integers(0, 3, 300)

    def model(share: float) -> list[int]:
        noise = (gold + random.integers(1, 3, 300)) % 3
        return np.where(random.random(300) < share, gold, noise).tolist()

    weak, weak_too, strong = model(0.6), model(0.6), model(0.8)
    better = paired_bootstrap(metric, gold.tolist(), weak, strong, draws=300)
    assert better.p_value < 0.02
    assert better.low is not None
    assert 0 < better.low < better.difference < (better.high or 0)
    same = paired_bootstrap(metric, gold.tolist(), weak, weak_too, draws=300)
    assert same.p_value > 0.05
    assert (same.low or 0) <= same.difference <= (same.high or 0)
    assert paired_bootstrap(metric, gold.tolist(), weak, weak, draws=50).p_value == 1.0


def test_the_bootstrap_is_about_the_t_test() -> None:
    random = np.random.default_rng(1)
    gold = [1] * 500
    first = (random.random(500) < 0.70).astype(int).tolist()
    second = (random.random(500) < 0.75).astype(int).tolist()
    found = paired_bootstrap(accuracy, gold, first, second, draws=2000)
    assert found.p_value == pytest.approx(stats.ttest_rel(second, first).pvalue, abs=0.03)


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda: mcnemar([True], []), "0 predictions for 1"),
        (lambda: permutation([], []), "no examples to score"),
        (lambda: paired_bootstrap(accuracy, [1], [1], [1], draws=0), "at least 1"),
    ],
)
def test_mistakes(call, fault: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BertsmithError, match=fault):
        call()
