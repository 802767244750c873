"""Median, mean, standard deviation and t interval over seeds, and bootstrap intervals."""

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
    high: float  # the interval holds the true value with this confidence; NaN where it is unknown
    count: int
    confidence: float

    @property
    def interval(self) -> str:
        """The interval as a person reads it."""
        return "unknown" if math.isnan(self.low) else f"{self.low:.4f} to {self.high:.4f}"


def bounds(metric: str) -> tuple[float, float]:
    """The range of a metric by which runs are chosen: from -1 for correlations, else from 0."""
    return (-1.0 if metric in ("mcc", "pearson", "spearman") else 0.0), 1.0


def over_seeds(
    scores: Sequence[float],
    *,
    confidence: float = 0.95,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Summary:
    """Return median, mean, standard deviation, and Student's t interval of the mean over seeds.

    Seeds are too few to resample: of 2 seeds, a bootstrap interval of 95% holds the true mean half
    of the time. The interval is cut to the `bounds` of the metric.
    """
    values = np.asarray(scores, dtype=np.float64)
    if not len(values):
        raise BertsmithError("no scores to summarise")
    _check(confidence)
    count, mean, median = len(values), float(values.mean()), float(np.median(values))
    deviation = float(values.std(ddof=1)) if count > 1 else 0.0
    if deviation == 0:  # one seed, or equal scores: they do not say how much seeds differ
        return Summary(mean, median, 0.0, math.nan, math.nan, count, confidence)
    margin = t_quantile(confidence, count - 1) * deviation / math.sqrt(count)
    low, high = max(mean - margin, bounds[0]), min(mean + margin, bounds[1])
    return Summary(mean, median, deviation, low, high, count, confidence)


def t_quantile(confidence: float, degrees: int) -> float:
    """Return the two-sided t quantile (Abramowitz and Stegun, 26.7.3 and 26.7.4) by bisection."""

    def within(angle: float) -> float:
        odd = degrees % 2
        term, total = math.cos(angle) ** odd, 0.0
        for number in range(odd + 1, degrees + 1, 2):
            total += term
            term *= math.cos(angle) ** 2 * number / (number + 1)
        total *= math.sin(angle)
        return 2 / math.pi * (angle + total) if odd else total

    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) < confidence else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


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
    interval. It is never [1, 1]: see `percentiles`.
    """
    drawn = [score(one) for one in drawn_weights(length, draws, seed)]
    return _summary(score(np.ones(length)), drawn, confidence, length)


def _summary(value: float, drawn: Sequence[float], confidence: float, length: int) -> Summary:
    values = np.asarray(drawn, dtype=np.float64)
    values = values[np.isfinite(values)]
    low, high = percentiles(values, confidence, length)
    deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return Summary(value, value, deviation, low, high, length, confidence)


def drawn_rows(length: int, draws: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """The numbers of the examples of each bootstrap sample."""
    if draws < 1:
        raise BertsmithError(f"draws must be at least 1, not {draws}")
    random = np.random.default_rng(seed)
    for _ in range(draws):
        yield random.integers(0, length, length)


def drawn_weights(length: int, draws: int, seed: int) -> Iterator[Weights]:
    """How often each example is in each bootstrap sample."""
    for rows in drawn_rows(length, draws, seed):
        yield np.bincount(rows, minlength=length).astype(np.float64)


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
        metric(*([column[n] for n in rows.tolist()] for column in columns))
        for rows in drawn_rows(length, draws, seed)
    ]
    if not np.isfinite(drawn).any():
        raise BertsmithError("the metric is NaN on every bootstrap draw")
    return _summary(float(metric(*columns)), drawn, confidence, length)


def percentiles(values: NDArray[np.float64], confidence: float, length: int) -> tuple[float, float]:
    """Return the percentile interval of scores drawn from `length` examples; NaN if none is finite.

    If every draw scores 1, or every draw 0, it is the exact interval of Clopper and Pearson.
    """
    _check(confidence)
    finite = values[np.isfinite(values)]
    if not len(finite):
        return math.nan, math.nan
    outside = 50 * (1 - confidence)
    low, high = np.percentile(finite, [outside, 100 - outside]).tolist()
    if (finite == 1).all():
        low = 1 - unseen(confidence, length)
    elif (finite == 0).all():
        high = unseen(confidence, length)
    return low, high


def unseen(confidence: float, length: int) -> float:
    """Return how frequent something may be that none of `length` examples shows."""
    return float(1 - ((1 - confidence) / 2) ** (1 / length))


def _check(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise BertsmithError(f"confidence must be between 0 and 1, not {confidence}")
