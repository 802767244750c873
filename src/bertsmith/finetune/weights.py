"""How much each class counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from bertsmith.errors import BertsmithError


def class_weights(asked: str, labels: Sequence[str], seen: Iterable[str]) -> list[float]:
    """A weight for each label: none asked for, balanced, or as `name=weight,...` says.

    Balanced weights make all classes count the same in sum, as scikit-learn's do.
    """
    if not asked:
        return [1.0] * len(labels)
    if asked == "balanced":
        counts = Counter(seen)
        total = sum(counts.values())
        return [total / (len(labels) * counts[name]) if counts[name] else 1.0 for name in labels]
    weights = dict.fromkeys(labels, 1.0)
    for part in asked.split(","):
        name, _, number = part.rpartition("=")
        if name.strip() not in weights:
            raise BertsmithError(
                f"class weights: {name.strip()!r} is no label; the labels are {', '.join(labels)}"
            )
        weights[name.strip()] = _weight(number, name.strip())
    return list(weights.values())


def _weight(text: str, name: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise BertsmithError(f"class weights: {text.strip()!r} is no weight for {name!r}")
    return number
