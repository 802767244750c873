"""Precision-recall and coverage curves: by hand, and against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.errors import BertsmithError
from bertsmith.metrics.curves import coverage, precision_recall


def test_by_hand() -> None:
    curve = precision_recall([0.9, 0.8, 0.8, 0.1], [True, False, True, True])
    assert curve.thresholds.tolist() == [0.9, 0.8, 0.1]
    assert curve.precision.tolist() == pytest.approx([1, 2 / 3, 3 / 4])
    assert curve.recall.tolist() == pytest.approx([1 / 3, 2 / 3, 1])
    assert curve.f1.tolist() == pytest.approx([1 / 2, 2 / 3, 6 / 7])
    answered = coverage([0.9, 0.5, 0.5, 0.4], [True, True, False, False])
    assert answered.thresholds.tolist() == [0.9, 0.5, 0.4]
    assert answered.accuracy.tolist() == pytest.approx([1, 2 / 3, 1 / 2])
    assert answered.coverage.tolist() == pytest.approx([1 / 4, 3 / 4, 1])


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1))
@settings(max_examples=60, deadline=None)
def test_equal_to_scikit_learn(rows: list[tuple[int, bool]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    scores, flags = [score / 8 for score, _ in rows], [flag for _, flag in rows]
    curve = precision_recall(scores, flags)
    if not any(flags):
        assert not curve.recall.any()
        assert not curve.f1.any()
        return
    assert curve.average_precision == pytest.approx(metrics.average_precision_score(flags, scores))
    precision, recall, thresholds = metrics.precision_recall_curve(flags, scores)
    assert np.allclose(curve.thresholds[::-1], thresholds)
    assert np.allclose(curve.precision[::-1], precision[:-1])
    assert np.allclose(curve.recall[::-1], recall[:-1])


def test_mistakes() -> None:
    with pytest.raises(BertsmithError, match="2 predictions for 1"):
        precision_recall([0.5], [True, False])
    with pytest.raises(BertsmithError, match="no examples to score"):
        coverage([], [])
