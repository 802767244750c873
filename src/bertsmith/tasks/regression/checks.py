"""Checks of scores: constant ones, and those outside the range of train."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bertsmith.tasks.check.findings import Finding, found


def scores(splits: Mapping[str, Any]) -> Iterator[Finding]:
    """Constant scores, and scores outside the range of train."""
    ranges: dict[str, tuple[float, float]] = {}
    for name, dataset in splits.items():
        values = [one.gold for one in dataset.examples if one.gold is not None]
        if not values:
            continue
        ranges[name] = min(values), max(values)
        if min(values) == max(values) and len(values) > 1:
            severity = "error" if name == "train" else "warning"
            what = f"{name}: every score is {values[0]:g}"
            where = (dataset.examples[0].where,)
            yield Finding(severity, "one-score", what, len(values), where)
    if "train" not in ranges:
        return
    low, high = ranges["train"]
    for name in ranges.keys() - {"train"}:
        places = [
            one.where
            for one in splits[name].examples
            if one.score is not None and not low <= one.score <= high
        ]
        what = f"scores outside train's range of {low:g} to {high:g}"
        yield from found("warning", "score-range", name, what, places)
