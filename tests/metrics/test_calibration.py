"""Calibration: by hand, and against a plain loop over bins."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.errors import BertsmithError
from bertsmith.metrics import calibration


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1),
    st.sampled_from([1, 2, 8, 16]),  # whose edges are exact
)
@settings(max_examples=80, deadline=None)
def test_equal_to_a_plain_loop(rows: list[tuple[float, bool]], bins: int) -> None:
    expected = 0.0
    for number in range(bins):
        low, high = number / bins, (number + 1) / bins
        inside = [r for r in rows if low < r[0] <= high or (number == 0 and r[0] == 0)]
        if inside:
            gap = sum(sure for sure, _ in inside) - sum(right for _, right in inside)
            expected += abs(gap) / len(rows)
    found = calibration([sure for sure, _ in rows], [right for _, right in rows], bins)
    assert found.expected == pytest.approx(expected)
    assert sum(one.count for one in found.bins) == len(rows)
    assert found.expected <= found.worst + 1e-12


def test_by_hand() -> None:
    found = calibration([0.9, 0.9, 0.6, 0.6], [True, False, True, True], bins=10)
    assert found.expected == pytest.approx(0.4)
    assert found.worst == pytest.approx(0.4)
    assert [(one.low, one.count, one.accuracy) for one in found.bins] == [
        (pytest.approx(0.5), 2, 1.0),
        (pytest.approx(0.8), 2, 0.5),
    ]
    assert calibration([1.0, 1.0], [True, True]).expected == 0.0


@pytest.mark.parametrize(
    ("sure", "bins", "fault"),
    [([1.2], 5, "from 0 to 1"), ([float("nan")], 5, "from 0 to 1"), ([0.5], 0, "at least 1")],
)
def test_mistakes(sure: list[float], bins: int, fault: str) -> None:
    with pytest.raises(BertsmithError, match=fault):
        calibration(sure, [True] * len(sure), bins)
