"""Guarantees for new data: conformal sets and intervals, and an abstention threshold."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertsmith.errors import BertsmithError
from bertsmith.metrics.curves import ranked

LEVELS = range(50, 100)  # percents of coverage whose limits are stored
RISK = 0.05  # probability that the accuracy which a threshold promises is missed
STEPS = 50  # thresholds that are tested at most


def limits(scores: Sequence[float]) -> dict[str, float]:
    """Return the largest admissible score for each percent of coverage, by split conformal.

    A score says how badly a label fits (1 - its probability, or an absolute error). Of data like
    these, the true label of at least that percentage, and of at most 1 / (n + 1) more if no two
    scores are equal, has a score up to the limit. Coverages that n scores cannot promise are
    absent.
    """
    rising, count = np.sort(np.asarray(scores, dtype=np.float64)), len(scores)
    if not np.isfinite(rising).all():
        raise BertsmithError("conformal scores must be finite numbers")
    places = {level: -(-(count + 1) * level // 100) for level in LEVELS}  # rounded up
    return {str(level): float(rising[k - 1]) for level, k in places.items() if k <= count}


def check_coverage(coverage: float) -> str:
    """Return the percentage under which the limit of a coverage is stored."""
    level = round(100 * coverage)
    if level not in LEVELS or not math.isclose(level, 100 * coverage):
        raise BertsmithError(f"coverage must be 0.5, 0.51, ... or 0.99, not {coverage:g}")
    return str(level)


def limit_for(stored: Mapping[str, Any], coverage: float) -> float:
    """Return the limit of one coverage, from what `limits` returned."""
    level = check_coverage(coverage)
    if level not in stored:
        raise BertsmithError(
            f"a coverage of {coverage:g} needs {rows_needed(coverage)} held-out rows or more; "
            f"those of this model allow {max(map(int, stored), default=0) / 100:g} at most"
        )
    return float(stored[level])


def rows_needed(coverage: float) -> int:
    """Return how many rows a coverage needs: with fewer, every set must hold every label."""
    return math.ceil(round(coverage / (1 - coverage), 9))


def rows_to_certify(accuracy: float, risk: float = RISK) -> int:
    """Return how many correct predictions without an error show an accuracy, with this risk."""
    return math.ceil(math.log(risk) / math.log(accuracy))


def chance_of(right: int, count: int, accuracy: float) -> float:
    """Return how likely at least `right` of `count` are correct with an accuracy: a tail."""
    if accuracy >= 1:
        return float(right <= count)
    hit, miss, total = math.log(accuracy), math.log1p(-accuracy), math.lgamma(count + 1)
    logs = (
        total - math.lgamma(k + 1) - math.lgamma(count - k + 1) + k * hit + (count - k) * miss
        for k in range(right, count + 1)
    )
    return min(1.0, math.fsum(map(math.exp, logs)))


def abstention(
    confidences: Sequence[float], correct: Sequence[bool], wanted: float, risk: float = RISK
) -> tuple[float, int]:
    """Return a confidence from which predictions on new data are accurate enough, and how many are.

    Except with a probability of `risk` (over the draw of these examples), predictions with at least
    this confidence have the accuracy that is wanted. Thresholds are tested from the surest quarter
    on, each by an exact binomial test, until one fails: a fixed order needs no correction
    (Angelopoulos et al., "Learn then Test", 2021). If the first fails, the confidence is above 1.
    """
    sure, hits, lasts = ranked(confidences, correct)
    lasts = lasts + 1  # as counts
    start, kept = min(len(sure), max(len(sure) // 4, 2 * rows_to_certify(wanted, risk))), 0
    steps = np.linspace(start, len(sure), STEPS).round().astype(int)
    for count in np.unique(lasts[np.searchsorted(lasts, steps)]).tolist():
        if chance_of(int(hits[count - 1]), count, wanted) > risk:
            break
        kept = count
    return (float(sure[kept - 1]), kept) if kept else (math.nextafter(1.0, 2.0), 0)
