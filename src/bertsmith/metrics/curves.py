"""Curves over a threshold: precision and recall of one label, accuracy and coverage."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.metrics.labels import paired

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PrecisionRecall:
    """Precision and recall of the examples that score at least each threshold, which falls."""

    thresholds: Array
    precision: Array
    recall: Array

    @property
    def f1(self) -> Array:
        """The harmonic mean of both."""
        total = self.precision + self.recall
        return np.divide(
            2 * self.precision * self.recall, total, out=np.zeros_like(total), where=total > 0
        )

    @property
    def average_precision(self) -> float:
        """The mean precision, weighted by the increase of recall at each threshold."""
        return float((np.diff(self.recall, prepend=0.0) * self.precision).sum())


def precision_recall(scores: Sequence[float], positive: Sequence[bool]) -> PrecisionRecall:
    """Compute precision and recall at every distinct score, the highest first."""
    ranked, true = _ranked(scores, positive)
    last = _last_of_equal(ranked)
    hits = np.cumsum(true)
    total = max(1.0, float(hits[-1]))
    return PrecisionRecall(ranked[last], hits[last] / (last + 1), hits[last] / total)


@dataclass(frozen=True)
class Coverage:
    """Accuracy of the predictions with at least each confidence, and how many these are."""

    thresholds: Array
    accuracy: Array
    coverage: Array  # fraction of all examples


def coverage(confidences: Sequence[float], correct: Sequence[bool]) -> Coverage:
    """Compute accuracy and coverage at every distinct confidence, the highest first."""
    ranked, true = _ranked(confidences, correct)
    last = _last_of_equal(ranked)
    return Coverage(ranked[last], np.cumsum(true)[last] / (last + 1), (last + 1) / len(ranked))


def _ranked(scores: Sequence[float], flags: Sequence[bool]) -> tuple[Array, Array]:
    paired(scores, flags)
    values = np.asarray(scores, dtype=np.float64)
    order = np.argsort(-values, kind="stable")
    return values[order], np.asarray(flags, dtype=np.float64)[order]


def _last_of_equal(ranked: Array) -> NDArray[np.int64]:
    """The last index of every group of equal scores: a threshold cannot divide them."""
    return np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)
