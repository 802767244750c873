"""Which task a table was made for, by its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertsmith.data.choices import has_choices
from bertsmith.data.columns import Finder, is_list
from bertsmith.data.rows import Table, sample


def guess_task(table: Table, given: Mapping[str, str]) -> tuple[str, str]:
    """The task that columns are made for, and why; raises where they say nothing."""
    finder = Finder(table, given)
    said = set(given)
    if said & {"tokens", "tags"} or (_lists(finder, "tokens") and has(finder, "tags")):
        return "tagging", "it has words and tags"
    if said & {"prompt", "options"} or has_choices(finder):
        return "choice", "it has choices"
    passage = any(name in finder.by_plain for name in ("context", "passage", "paragraph"))
    answered = said & {"question", "passage", "answers"} or "human_ans_spans" in finder.by_plain
    if answered or (passage and "question" in finder.by_plain):
        return "answering", "it has questions and passages"
    if said & {"anchor", "positive"} or {"anchor", "positive"} <= set(finder.by_plain):
        return "similarity", "it has texts that belong together"
    if "score" in said:
        return "regression", "a column of scores was named"
    text, pair = Finder(table, given).couple()
    what = "texts" if pair is None else "pairs of texts"
    labels = Finder(table, given)
    labels.note("text", text)
    column = labels.known("label")
    if column is None or (pair and labels.by_plain.get("score") and "label" not in said):
        if "score" in finder.by_plain:
            return "regression", f"it has {what} and scores"
        return "classification", f"it has {what}, and no labels"
    if is_list(table, column):
        return "multilabel", f"it has {what} and lists of labels"
    values = sample(table, column)
    if values and all(_fraction(value) is not None for value in values):
        if any(_fraction(value) for value in values):
            return "regression", f"it has {what}, and {column!r} holds fractions"
    return "classification", f"it has {what} and labels"


def has(finder: Finder, role: str) -> bool:
    """Is there a column for this role?"""
    return Finder(finder.table, finder.given).known(role) is not None


def _lists(finder: Finder, role: str) -> bool:
    name = Finder(finder.table, finder.given).known(role)
    return name is not None and is_list(finder.table, name)


def _fraction(value: Any) -> float | None:
    """What a number has behind its point; None where it is no number."""
    try:
        return float(value) % 1
    except (TypeError, ValueError):
        return None
