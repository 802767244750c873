"""Drift: what a model reads and predicts, compared with the data that it was evaluated on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FEW = 100  # texts below which a comparison says nothing
FIGURES = ("lengths", "unknown_tokens", "labels", "confidence")


@dataclass
class Figures:
    """Counts of texts by length, of unknown tokens, and of predictions by label and confidence."""

    lengths: Counter[str] = field(default_factory=Counter)  # by powers of two, in tokens
    unknown_tokens: Counter[str] = field(default_factory=Counter)  # "unknown" and "known"
    labels: Counter[str] = field(default_factory=Counter)
    confidence: Counter[str] = field(default_factory=Counter)  # by tenths

    @property
    def texts(self) -> int:
        """How many texts were counted."""
        return self.lengths.total()

    def add(self, windows: Sequence[Any], unknown: int | None, answer: Any) -> None:
        """Count the windows of texts and what was predicted for them."""
        ends: dict[int, int] = {}
        for window in windows:
            ends[window.number] = max(ends.get(window.number, 0), window.tokens.stop)
            missing = sum(number == unknown for number in window.ids)
            self.unknown_tokens["unknown"] += missing
            self.unknown_tokens["known"] += len(window.ids) - missing
        for length in ends.values():
            self.lengths[str(1 << (length - 1).bit_length() if length else 0)] += 1
        for label, score in predictions(answer):
            self.labels.update([label] if label is not None else [])
            if 0 <= score <= 1:
                self.confidence[f"{min(9, int(10 * score)) / 10:.1f}"] += 1

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Return the counts as plain values."""
        return {name: dict(sorted(getattr(self, name).items())) for name in FIGURES}

    @classmethod
    def read(cls, content: Any) -> Figures | None:
        """Return the figures that a model was stored with; None if there are none."""
        if not isinstance(content, Mapping):
            return None
        figures = {name: content.get(name, {}) for name in FIGURES}
        counts = [one for row in figures.values() for one in getattr(row, "values", list)()]
        if not counts or any(not isinstance(one, int) or one < 0 for one in counts):
            return None
        return cls(**{name: Counter(row) for name, row in figures.items()})


def predictions(answer: Any) -> Iterator[tuple[str | None, float]]:
    """The labels and scores in an answer, however nested."""
    if isinstance(answer, list | tuple):
        for one in answer:
            yield from predictions(one)
    elif isinstance(score := getattr(answer, "score", None), float):
        yield getattr(answer, "label", None), score


def drift(stored: Figures, seen: Figures) -> dict[str, float | None]:
    """The population stability index of each figure; None where there is too little to compare.

    It is the sum of (p - q) log(p / q) over the bins. By custom, up to 0.1 is no change and above
    0.25 a large one. Half a count is added to every bin, so that an empty one is not infinite.
    """
    return {name: _index(getattr(stored, name), getattr(seen, name)) for name in FIGURES}


def _index(stored: Counter[str], seen: Counter[str]) -> float | None:
    bins = {*stored, *seen}
    if min(stored.total(), seen.total()) < FEW:
        return None
    totals = [one.total() + 0.5 * len(bins) for one in (stored, seen)]
    pairs = [((stored[b] + 0.5) / totals[0], (seen[b] + 0.5) / totals[1]) for b in bins]
    return sum((p - q) * math.log(p / q) for p, q in pairs)
