"""Paired tests between two models on the same examples."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import BertsmithError
from bertsmith.metrics.conformal import chance_of
from bertsmith.metrics.intervals import drawn_rows, drawn_weights, unseen
from bertsmith.metrics.labels import Weights, paired

EXACT = 14  # examples up to which every permutation is tried


@dataclass(frozen=True)
class Comparison:
    """The difference between two models and its p-value."""

    difference: float
    p_value: float  # two-sided
    low: float | None = None  # interval of the difference, where the test gives one
    high: float | None = None


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> Comparison:
    """McNemar's exact test on the correctness of two models."""
    paired(first, second)
    lost = sum(bool(a) and not b for a, b in zip(first, second, strict=True))
    won = sum(bool(b) and not a for a, b in zip(first, second, strict=True))
    p_value = min(1.0, 2 * chance_of(max(won, lost), won + lost, 0.5))
    return Comparison((won - lost) / len(first), p_value)


def permutation(
    first: Sequence[float], second: Sequence[float], *, draws: int = 10_000, seed: int = 0
) -> Comparison:
    """Permutation test: swap the scores of two models on random examples.

    With few examples all permutations are computed; otherwise `draws` random ones, and the observed
    one counts as one of them.
    """
    paired(first, second)
    gaps = np.asarray(second, dtype=np.float64) - np.asarray(first, dtype=np.float64)
    lead = gaps.mean()
    limit = abs(lead) * (1 - 1e-12)  # sums of the same numbers in another order are equal
    if len(gaps) <= EXACT:
        ways = np.arange(2 ** len(gaps))[:, None] >> np.arange(len(gaps)) & 1
        hits = np.abs((1 - 2 * ways) @ gaps / len(gaps)) >= limit
        return Comparison(float(lead), float(hits.mean()))
    random = np.random.default_rng(seed)
    larger = 0
    for _ in range(draws):
        signs = random.integers(0, 2, len(gaps)) * 2 - 1
        larger += bool(abs(signs @ gaps / len(gaps)) >= limit)
    return Comparison(float(lead), (larger + 1) / (draws + 1))


def resample_pair(
    first: Callable[[Weights], float],
    second: Callable[[Weights], float],
    length: int,
    *,
    confidence: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> Comparison:
    """Paired bootstrap of two models' scores, each a function of the weights of examples."""
    everything = np.ones(length)
    lead = second(everything) - first(everything)
    leads = [second(one) - first(one) for one in drawn_weights(length, draws, seed)]
    return compared(lead, leads, confidence, length)


def paired_bootstrap(
    metric: Callable[[Sequence[Any], Sequence[Any]], float],
    gold: Sequence[Any],
    first: Sequence[Any],
    second: Sequence[Any],
    *,
    confidence: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> Comparison:
    """Compare two models by resampling examples; works for every metric, such as F1 and MCC.

    The p-value is twice the fraction of draws without a lead, at most 1.
    """
    paired(gold, first)
    paired(gold, second)
    if draws < 1 or not 0 < confidence < 1:
        raise BertsmithError("draws must be at least 1 and confidence between 0 and 1")
    lead = metric(gold, second) - metric(gold, first)
    leads = []
    for rows in drawn_rows(len(gold), draws, seed):
        sample, one, other = ([side[n] for n in rows.tolist()] for side in (gold, first, second))
        leads.append(metric(sample, other) - metric(sample, one))
    return compared(lead, leads, confidence, len(gold))


def compared(
    lead: float, leads: Sequence[float] | NDArray[np.float64], confidence: float, length: int
) -> Comparison:
    """A difference with its p-value and interval, by the differences of bootstrap samples."""
    values = np.asarray([value for value in leads if not math.isnan(value)])
    if not len(values) or math.isnan(lead):
        raise BertsmithError("the metric is NaN on these examples")
    gone = int(min((values <= 0).sum(), (values >= 0).sum()))
    outside = 50 * (1 - confidence)
    low, high = np.percentile(values, [outside, 100 - outside]).tolist()
    if not values.any():  # no example tells the two apart
        high = unseen(confidence, length)
        low = -high
    return Comparison(lead, min(1.0, 2 * (gone + 1) / (len(values) + 1)), low, high)
