"""Checks of tags: numbers, schemes that differ, tags that violate their scheme."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bertsmith.metrics.schemes import chunks, faults, split
from bertsmith.tasks.check.findings import Finding, found
from bertsmith.tasks.tagging.examples import Tagged

MANY = 0.01  # the share of entities that may be broken before training suffers


def schemes(splits: Mapping[str, Any]) -> Iterator[Finding]:
    """Tags that are numbers, and splits with different tagging schemes."""
    dataset = splits["train"]
    numbers = dataset.labels and all(label.isdecimal() for label in dataset.labels)
    if numbers:
        what = "train: tags are numbers, so entities cannot be scored"
        advice = "name them with --label-names O,B-PER,..."
        yield Finding("warning", "numbered-tags", what, len(dataset.labels), (), advice)
    spelled = {name: one.scheme for name, one in splits.items() if one.labels}
    if len(set(spelled.values())) > 1:
        spoken = ", ".join(f"{name} is {scheme or 'plain'}" for name, scheme in spelled.items())
        no_entities = any(
            {split(label)[0] for label in one.labels} <= {"O"} for one in splits.values()
        )  # a split without entities has no scheme of its own
        if not no_entities:
            what = f"splits use different tagging schemes: {spoken}"
            yield Finding("error", "schemes", what, len(spelled), (), "convert one of them")


def tags(splits: Mapping[str, Any]) -> Iterator[Finding]:
    """Tags that violate their scheme."""
    for name, dataset in splits.items():
        if dataset.scheme is None:
            continue
        places, first, total = [], "", 0
        for one in dataset.examples:
            if isinstance(one, Tagged) and one.tags is not None:
                total += len(chunks(one.tags))
                for word, what in faults(one.tags, dataset.scheme):
                    first = first or what
                    places.append(one.at(word))
        severity = "error" if len(places) > MANY * total else "warning"
        what = f"tags that violate {dataset.scheme.upper()} (first: {first})"
        advice = "they are scored as by conlleval; correct them"
        yield from found(severity, "broken-tags", name, what, places, advice)
