"""Checks of tags and of answers in their passages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bertsmith.metrics.schemes import chunks, faults
from bertsmith.tasks.check.findings import Finding, Splits, found
from bertsmith.tasks.examples import Question, Tagged

MANY = 0.01  # the share of entities that may be broken before training suffers


def tags(splits: Splits) -> Iterator[Finding]:
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
        yield from found(
            severity,
            "broken-tags",
            name,
            f"tags that violate {dataset.scheme.upper()} (first: {first})",
            places,
            "they are scored as by conlleval; correct them",
        )


def answers(splits: Splits) -> Iterator[Finding]:
    """Answers that are not in the passage, repeated ids, and questions without an answer."""
    for name, dataset in splits.items():
        rows = [one for one in dataset.examples if isinstance(one, Question)]
        if not rows:
            continue
        lost = [one.where for one in rows if any(span.start < 0 for span in one.answers or ())]
        severity = "error" if len(lost) > 0.5 * len(rows) else "warning"
        what = "questions with an answer that is not in the passage"
        yield from found(severity, "lost-answer", name, what, lost, "scored, but not trained on")
        times = Counter(one.id for one in rows)
        twice = [one.where for one in rows if times[one.id] > 1]
        what = "questions with the id of another question"
        yield from found("error", "same-id", name, what, twice, "ids must be unique")
        blank = [one.where for one in rows if any(not s.text.strip() for s in one.answers or ())]
        yield from found("warning", "blank-answer", name, "questions with a blank answer", blank)
        none = sum(one.impossible for one in rows)
        if none:
            what = f"{name}: {none / len(rows):.1%} of the questions have no answer ({none:,})"
            yield Finding("note", "no-answer", what, none)
