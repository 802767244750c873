"""Draws are pure functions of their keys, and look like chance."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.examples.draw import below, bits, shuffled, uniform


def test_draws_depend_on_every_key_and_nothing_else() -> None:
    numbers = np.arange(1000)
    assert np.array_equal(bits(1, numbers, "a"), bits(1, numbers, "a"))
    for other in (bits(2, numbers, "a"), bits(1, numbers + 1000, "a"), bits(1, numbers, "b")):
        assert not (bits(1, numbers, "a") == other).any()
    # A number has the same draw whatever stands beside it.
    assert np.array_equal(bits(1, numbers, "a")[500:], bits(1, numbers[500:], "a"))


def test_draws_are_even() -> None:
    found = uniform(0, np.arange(1_000_000), "even")
    assert 0 <= found.min() < 1e-5
    assert 1 - 1e-5 < found.max() < 1
    counts = np.bincount((found * 100).astype(int), minlength=100)
    chi_squared = float(((counts - 10_000) ** 2 / 10_000).sum())
    assert 50 < chi_squared < 160  # 99 degrees of freedom
    neighbours = np.corrcoef(found[:-1], found[1:])[0, 1]
    assert abs(neighbours) < 0.005


def test_whole_numbers_stay_below_their_limits() -> None:
    limits = np.arange(1, 1001)
    found = below(limits, 0, np.arange(1000))
    assert (found >= 0).all()
    assert (found < limits).all()


@given(st.integers(1, 3000), st.integers(0, 2**40))
def test_a_shuffle_is_a_permutation(count: int, seed: int) -> None:
    assert sorted(shuffled(np.arange(count), count, seed).tolist()) == list(range(count))


def test_a_shuffle_is_thorough() -> None:
    place = shuffled(np.arange(10_000), 10_000, 0)
    assert abs(np.corrcoef(np.arange(10_000), place)[0, 1]) < 0.03
    assert (np.diff(place) == 1).sum() < 10
    assert not np.array_equal(place, shuffled(np.arange(10_000), 10_000, 1))


def test_a_shuffle_needs_no_memory_for_what_is_not_asked() -> None:
    found = shuffled(np.array([0, 5, 10**14]), 10**15, 3)
    assert len(set(found.tolist())) == 3
    assert (found < 10**15).all()
