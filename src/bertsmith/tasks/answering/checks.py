"""Checks of questions: answers in their passages, ids, questions without an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bertsmith.tasks.check.findings import Finding, found


def answers(splits: Mapping[str, Any]) -> Iterator[Finding]:
    """Answers that are not in the passage, repeated ids, and questions without an answer."""
    for name, dataset in splits.items():
        rows = dataset.examples
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
