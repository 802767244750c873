"""Checks of choices: where the correct one stands, equal ones, and how many there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bertsmith.tasks.check.findings import Finding, found


def choices(splits: Mapping[str, Any]) -> Iterator[Finding]:
    """Correct choices that are mostly in one position, and repeated choices."""
    for name, dataset in splits.items():
        rows = dataset.examples
        places = Counter(one.label for one in rows if one.label is not None)
        if len(rows) >= 20 and places:
            place, times = places.most_common(1)[0]
            if times > 0.8 * places.total():
                fraction = times / places.total()
                what = f"{name}: {fraction:.1%} of the correct choices are number {place + 1}"
                advice = "a model would learn the position; shuffle the choices"
                yield Finding("warning", "choice-place", what, times, (), advice)
        twice = [one.where for one in rows if len(set(one.options)) < len(one.options)]
        what = "examples with two equal choices"
        yield from found("warning", "same-choice", name, what, twice)
        widths = Counter(len(one.options) for one in rows)
        if len(widths) > 1:
            spoken = ", ".join(f"{n:,} with {width}" for width, n in sorted(widths.items()))
            yield Finding("note", "choice-count", f"{name}: {spoken} choices", len(widths))
