"""Scores of numbers: correlations by value and by rank, and errors."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertsmith.metrics.labels import Scorer, Weights, paired


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Pearson correlation; NaN if either side is constant."""
    paired(gold, predicted)
    one, other = np.asarray(gold, np.float64), np.asarray(predicted, np.float64)
    return _correlation(one, other, np.ones(len(one)))


def spearman(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Spearman correlation: Pearson correlation of ranks, with mean ranks for ties."""
    paired(gold, predicted)
    return pearson(ranks(gold).tolist(), ranks(predicted).tolist())


def ranks(values: ArrayLike, counts: Weights | None = None) -> NDArray[np.float64]:
    """The rank of each value from 1, the mean for ties; values are there as often as they count."""
    _, place = np.unique(values, return_inverse=True)
    each = np.bincount(place, counts)
    return (np.cumsum(each) - (each - 1) / 2)[place]


def number_scores(gold: Sequence[float], predicted: Sequence[float]) -> Scorer:
    """Pearson's and Spearman's correlation (NaN if a side is constant) and mean squared error."""
    paired(gold, predicted)
    one, other = np.asarray(gold, np.float64), np.asarray(predicted, np.float64)

    def scores(weights: Weights | None = None) -> dict[str, float]:
        counts = np.ones(len(one)) if weights is None else weights
        return {
            "pearson": _correlation(one, other, counts),
            "spearman": _correlation(ranks(one, counts), ranks(other, counts), counts),
            "mean_squared_error": float(np.average((one - other) ** 2, weights=counts)),
        }

    return scores


def _correlation(one: NDArray[np.float64], other: NDArray[np.float64], counts: Weights) -> float:
    used = counts > 0
    sides = []
    for values in (one[used], other[used]):
        if (values == values[0]).all():
            return math.nan
        moved = values - np.average(values, weights=counts[used])
        # Scaled first, so that the squares of tiny or huge values stay within a float.
        moved = moved / np.abs(moved).max()
        sides.append(moved / math.sqrt(counts[used] @ moved**2))
    return float(np.clip(counts[used] @ (sides[0] * sides[1]), -1, 1))
