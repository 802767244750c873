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
    values, hits, last = ranked(scores, positive)
    total = max(1.0, float(hits[-1]))
    return PrecisionRecall(values[last], hits[last] / (last + 1), hits[last] / total)


@dataclass(frozen=True)
class Coverage:
    """Accuracy of the predictions with at least each confidence, and how many these are."""

    thresholds: Array
    accuracy: Array
    coverage: Array  # fraction of all examples


def coverage(confidences: Sequence[float], correct: Sequence[bool]) -> Coverage:
    """Compute accuracy and coverage at every distinct confidence, the highest first."""
    values, hits, last = ranked(confidences, correct)
    return Coverage(values[last], hits[last] / (last + 1), (last + 1) / len(values))


def ranked(
    scores: Sequence[float], flags: Sequence[bool]
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Return the scores, the highest first, and how many flags are true up to each.

    And the last index of every group of equal scores: a threshold cannot divide them.
    """
    paired(scores, flags)
    values = np.asarray(scores, dtype=np.float64)
    order = np.argsort(-values, kind="stable")
    values, hits = values[order], np.cumsum(np.asarray(flags, dtype=np.float64)[order])
    return values, hits, np.append(np.flatnonzero(np.diff(values)), len(values) - 1)
