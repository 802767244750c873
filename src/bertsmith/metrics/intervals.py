"""Median, mean and standard deviation over seeds, and bootstrap intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import BertsmithError
from bertsmith.metrics.labels import Weights


@dataclass(frozen=True)
class Summary:
    """A score, or the mean of several runs, with its interval."""

    mean: float
    median: float
    deviation: float  # of the sample (n - 1); 0 of a single run
    low: float
    high: float  # the interval holds the true value with this confidence
    count: int
    confidence: float


def over_seeds(
    scores: Sequence[float], *, confidence: float = 0.95, draws: int = 10_000, seed: int = 0
) -> Summary:
    """Return median, mean, standard deviation, and bootstrap interval of the mean over seeds."""
    values = np.asarray(scores, dtype=np.float64)
    if not len(values):
        raise BertsmithError("no scores to summarise")
    means = values[_picks(len(values), draws, seed)].mean(1)
    low, high = _percentiles(means, confidence)
    deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    mean, median = float(values.mean()), float(np.median(values))
    return Summary(mean, median, deviation, low, high, len(values), confidence)


def resample(
    score: Callable[[Weights], float],
    length: int,
    *,
    confidence: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> Summary:
    """Return a score with its percentile interval, by resampling examples with replacement.

    `score` takes the weight (count) of each of `length` examples. If the score is NaN, so is the
    interval.
    """
    value = score(np.ones(length))
    values = np.asarray([score(one) for one in drawn_weights(length, draws, seed)])
    values = values[np.isfinite(values)]
    low, high = _percentiles(values, confidence) if len(values) else (math.nan, math.nan)
    deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return Summary(value, value, deviation, low, high, length, confidence)


def drawn_weights(length: int, draws: int, seed: int) -> Iterator[Weights]:
    """How often each example is drawn, draw after draw."""
    if draws < 1:
        raise BertsmithError(f"draws must be at least 1, not {draws}")
    random = np.random.default_rng(seed)
    for _ in range(draws):
        yield np.bincount(random.integers(0, length, length), minlength=length).astype(np.float64)


def bootstrap(
    metric: Callable[..., float],
    *columns: Sequence[Any],
    confidence: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> Summary:
    """Return a metric with its percentile interval, by resampling examples with replacement.

    `metric(*columns)` is called with lists; for example `bootstrap(mcc, gold, predicted)`.
    """
    length = len(columns[0]) if columns else 0
    if not length or any(len(column) != length for column in columns):
        raise BertsmithError("a bootstrap needs non-empty columns of equal length")
    drawn = [
        metric(*([column[place] for place in picks] for column in columns))
        for picks in _picks(length, draws, seed).tolist()
    ]
    values = np.asarray([value for value in drawn if not math.isnan(value)])
    if not len(values):
        raise BertsmithError("the metric is NaN on every bootstrap draw")
    low, high = _percentiles(values, confidence)
    deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    value = float(metric(*columns))
    return Summary(value, value, deviation, low, high, length, confidence)


def _picks(length: int, draws: int, seed: int) -> NDArray[np.int64]:
    if draws < 1:
        raise BertsmithError(f"draws must be at least 1, not {draws}")
    return np.random.default_rng(seed).integers(0, length, (draws, length))


def _percentiles(values: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    if not 0 < confidence < 1:
        raise BertsmithError(f"confidence must be between 0 and 1, not {confidence}")
    outside = 50 * (1 - confidence)
    low, high = np.percentile(values, [outside, 100 - outside]).tolist()
    return low, high
