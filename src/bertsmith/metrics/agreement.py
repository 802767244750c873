"""Agreement of people who label the same texts: Krippendorff's alpha and Cohen's kappa."""

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import chain, combinations
from typing import Any


def krippendorff_alpha(units: Sequence[Sequence[Hashable]], interval: bool = False) -> float | None:
    """Krippendorff's alpha of units, each with the values that people gave it.

    Values are names, or numbers at an `interval`. People may have left out any units; those with
    fewer than two values do not count. None where there are no others, or all values are equal.
    """
    shared = [Counter(values) for values in units if len(values) > 1]
    total = Counter(chain.from_iterable(one.elements() for one in shared))
    observed = sum(_pairs(one, interval) / (one.total() - 1) for one in shared)
    expected = _pairs(total, interval)
    if not expected:
        return None
    return 1 - (total.total() - 1) * observed / expected


def _pairs(counts: Counter[Any], interval: bool) -> float:
    """The sum of the distances of all pairs of values: squared differences, or 1 if unequal."""
    return sum(
        2 * counts[a] * counts[b] * ((float(a) - float(b)) ** 2 if interval else 1.0)
        for a, b in combinations(counts, 2)
    )


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Cohen's kappa of two people who labelled the same texts; None where it is not defined."""
    count = len(first)
    pairs = zip(first, second, strict=True)
    mine, others = Counter(first), Counter(second)
    expected = sum(mine[name] * others[name] for name in mine)
    if not count or expected == count * count:
        return None
    observed = sum(one == other for one, other in pairs)
    return (observed * count - expected) / (count * count - expected)
