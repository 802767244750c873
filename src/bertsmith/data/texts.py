"""Rows of texts → examples: labels, several labels, numbers, tags in lists, related texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bertsmith.data.columns import Finder, plain
from bertsmith.data.examples import (
    Labelled,
    MultiLabelled,
    Related,
    Scored,
    Tagged,
    Where,
    joined,
)
from bertsmith.data.rows import Row, Table, list_cell, sample, text_cell
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger

SEPARATORS = "|;,"
Texts = tuple[str, str | None]


def read_labelled(
    table: Table, finder: Finder, ledger: Ledger, names: Sequence[str] | None
) -> list[Labelled]:
    """Texts or pairs, each with one label, or none where the file has no column of them."""
    column = finder.said("label")
    text, pair = finder.couple()
    column = column or finder.known("label")
    classes = _classes(table, column, names)
    hidden = column is not None and _unsaid(table, column)
    agreed = column is not None and plain(column) == "gold_label"
    examples = []
    for row in table.rows:
        where = table.where(row)
        label = None
        if column is not None and not hidden:
            label = _label(row.cells.get(column), where, column, classes)
        if agreed and label == "-":  # so SNLI and MNLI say that people disagreed
            ledger.note("rows on whose label people did not agree (-), left out")
            continue
        examples.append(Labelled(*_texts(row, where, text, pair), label, where))
    return examples


def read_multilabelled(
    table: Table, finder: Finder, names: Sequence[str] | None
) -> list[MultiLabelled]:
    """Texts with lists of labels, labels between separators, or a column of 0 and 1 for each."""
    said = finder.said("label")
    text, pair = finder.couple()
    column = said or finder.known("label")
    flags = [] if column else _flags(table, {text, pair})
    if flags:
        finder.note("label", f"{len(flags)} columns of 0 and 1: {', '.join(flags)}")
    separator = "" if column is None else _separator(table, column)
    if separator.strip():
        finder.note("label", f"{column}, split at {separator}")
    classes = _classes(table, column, names)
    examples = []
    for row in table.rows:
        where = table.where(row)
        labels: tuple[str, ...] | None = None
        if flags:
            labels = tuple(
                name for name in flags if str(row.cells.get(name)) in ("1", "1.0", "True")
            )
        elif column is not None and (value := row.cells.get(column)) is not None:
            cells = _several(value, where, column, separator)
            found = (_label(cell, where, column, classes) for cell in cells)
            labels = tuple(dict.fromkeys(name for name in found if name is not None))
        examples.append(MultiLabelled(*_texts(row, where, text, pair), labels, where))
    return examples


def read_scored(table: Table, finder: Finder) -> list[Scored]:
    """Texts or pairs, each with a number."""
    said = finder.said("score") or finder.said("label")
    text, pair = finder.couple()
    column = said or finder.known("score")
    examples = []
    for row in table.rows:
        where = table.where(row)
        score = None
        value = row.cells.get(column) if column else None
        if value is not None and value != "":
            score = _number(value, where, str(column))
        examples.append(Scored(*_texts(row, where, text, pair), score, where))
    return examples


def read_related(table: Table, finder: Finder) -> list[Related]:
    """Texts that belong together: two columns, or three with one that does not belong."""
    anchor, positive = finder.needed("anchor"), finder.needed("positive")
    negative = finder.known("negative")
    examples = []
    for row in table.rows:
        where = table.where(row)

        def cell(name: str, row: Row = row, where: Where = where) -> str:
            value = row.cells.get(name)
            one = value[0] if isinstance(value, list) and value else value
            return text_cell(one, where, name)

        other = cell(negative) if negative else None
        examples.append(Related(cell(anchor), cell(positive), other, where))
    return examples


def read_tagged(
    table: Table, finder: Finder, ledger: Ledger, names: Sequence[str] | None
) -> list[Tagged]:
    """Rows with a list of words and a list of tags, which must be equally long."""
    words, tags = finder.needed("tokens"), finder.known("tags")
    classes = _classes(table, tags, names)
    examples = []
    for row in table.rows:
        where = table.where(row)
        cells = list_cell(row.cells.get(words), where, words)
        spelled = tuple(text_cell(word, where, words) for word in cells)
        if not spelled:
            ledger.note("sentences without words, left out")
            continue
        marked = None
        if tags is not None and row.cells.get(tags) is not None:
            given = list_cell(row.cells[tags], where, tags)
            if len(given) != len(spelled):
                raise BertsmithError(
                    f"{where}: {len(spelled)} words in {words!r}, {len(given)} tags in {tags!r}"
                )
            named = [_label(tag, where, tags, classes) for tag in given]
            if None in named:
                raise BertsmithError(
                    f"{where}: word {named.index(None) + 1} has no tag in {tags!r}"
                )
            marked = tuple(str(name) for name in named)
        text, offsets = joined(spelled)
        examples.append(Tagged(text, spelled, offsets, marked, where))
    return examples


# ------------------------------------------------------------------ cells


def _texts(row: Row, where: Where, text: str, pair: str | None) -> Texts:
    first = text_cell(row.cells.get(text), where, text)
    return first, None if pair is None else text_cell(row.cells.get(pair), where, pair)


def _label(value: Any, where: Where, column: str, classes: Sequence[str] | None) -> str | None:
    """A label by its name: numbers are looked up in the names of classes, where there are some."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    name = text_cell(value, where, column).strip()
    if classes and (name.isdecimal() or name == "-1"):
        number = int(name)
        if number >= len(classes):
            raise BertsmithError(f"{where}: label {number}, but there are {len(classes)} names")
        return classes[number] if number >= 0 else None
    return name or None


def _classes(table: Table, column: str | None, names: Sequence[str] | None) -> Sequence[str] | None:
    """The names of a column's numbers: as told, or as the file itself says."""
    return names or (table.classes.get(column) if column else None)


def _unsaid(table: Table, column: str) -> bool:
    """Is every label -1, which is how test files of known benchmarks hide them?"""
    values = {str(row.cells.get(column)) for row in table.rows}
    return values == {"-1"}


def _number(value: Any, where: Where, column: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise BertsmithError(f"{where}: {column!r} is {value!r}, not a number") from None
    if not math.isfinite(number):
        raise BertsmithError(f"{where}: {column!r} is {value!r}, which nothing can be near to")
    return number


def _flags(table: Table, texts: set[str | None]) -> list[str]:
    """The columns that hold only 0 and 1."""
    found = []
    for name in table.names:
        values = {str(row.cells.get(name)) for row in table.rows}
        if name not in texts and values <= {"0", "1", "0.0", "1.0", "True", "False"}:
            found.append(name)
    return found


def _separator(table: Table, column: str) -> str:
    """What stands between labels of one cell; a blank where nothing needs to."""
    values = [value for value in sample(table, column, 10**9) if isinstance(value, str)]
    written = [value for value in values if not value.strip().startswith("[")]
    return next((mark for mark in SEPARATORS if any(mark in value for value in written)), " ")


def _several(value: Any, where: Where, column: str, separator: str) -> list[Any]:
    if isinstance(value, str) and not value.strip().startswith("["):
        return value.split(separator) if separator.strip() else [value]
    if isinstance(value, int | float):
        return [value]
    return list_cell(value, where, column)
