"""Rows of texts → examples: labels, several labels, scores, tags in lists, related texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bertsmith.data.columns import Finder, plain
from bertsmith.data.delimited import ABSENT
from bertsmith.data.tables import Row, Table, is_absent, list_cell, sample, text_cell
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.numbers import parse_number, parse_whole, shown
from bertsmith.tasks.examples import (
    Annotated,
    Labelled,
    MultiLabelled,
    Related,
    Scored,
    Tagged,
    Where,
    joined,
)
from bertsmith.tasks.tagging.characters import read_spans

SEPARATORS = "|;,"
LARGEST = 1e30  # scores, whose squared errors a model learns in float32
TEXTLESS = "rows without a text, left out"


def read_labelled(
    table: Table, finder: Finder, ledger: Ledger, names: Sequence[str] | None
) -> list[Labelled]:
    """Texts or pairs, each with one label, or none where the file has no column of them."""
    column = finder.named("label")
    texts = finder.texts()
    column = column or finder.label()
    classes = _classes(table, column, names)
    hidden = column is not None and _all_hidden(table, column)
    agreed = column is not None and plain(column) == "gold_label"
    examples = []
    for row in table.rows:
        where = table.where(row)
        label = None
        if column is not None and not hidden:
            label = _class(row.cells.get(column), where, column, classes)
        if agreed and label == "-":  # so SNLI and MNLI say that people disagreed
            ledger.note("rows without a majority label (-), left out")
            continue
        both = texts.read(row, where)
        if both is None:
            ledger.note(TEXTLESS)
            continue
        examples.append(Labelled(*both, label, where))
    return examples


def read_multilabelled(
    table: Table, finder: Finder, ledger: Ledger, names: Sequence[str] | None
) -> list[MultiLabelled]:
    """Texts with lists of labels, labels between separators, or a column of 0 and 1 for each."""
    column = finder.named("label")
    texts = finder.texts()
    column = column or finder.known("label")
    flags = [] if column else _flags(table, {texts.text, texts.pair})
    if flags:
        finder.note("label", f"{len(flags)} columns of 0 and 1: {', '.join(flags)}", *flags)
    separator = "" if column is None else _separator(table, column)
    if column and separator.strip():
        finder.note("label", f"{column}, split at {separator}", column)
    classes = _classes(table, column, names)
    examples = []
    for row in table.rows:
        where = table.where(row)
        labels: tuple[str, ...] | None = None
        if flags:
            labels = tuple(
                name for name in flags if str(row.cells.get(name)) in ("1", "1.0", "True")
            )
        elif column is not None and not is_absent(value := row.cells.get(column)):
            cells = _several(value, where, column, separator)
            spelled = (_class(cell, where, column, classes) for cell in cells)
            labels = tuple(dict.fromkeys(name for name in spelled if name is not None))
        both = texts.read(row, where)
        if both is None:
            ledger.note(TEXTLESS)
            continue
        examples.append(MultiLabelled(*both, labels, where))
    return examples


def read_scored(table: Table, finder: Finder, ledger: Ledger) -> list[Scored]:
    """Texts or pairs, each with a number."""
    column = finder.named("score") or finder.named("label")
    texts = finder.texts()
    column = column or finder.known("score")
    examples = []
    for row in table.rows:
        where = table.where(row)
        score = None
        value = row.cells.get(column) if column else None
        if not is_absent(value) and value != "":
            score = parse_number(value)
            if score is None:
                raise BertsmithError(f"{where}: {column!r} is {shown(value)}, not a finite number")
            if abs(score) > LARGEST:
                raise BertsmithError(
                    f"{where}: {column!r} is {shown(value)}, more than a model can output; scale "
                    f"the scores to at most {LARGEST:g}"
                )
        both = texts.read(row, where)
        if both is None:
            ledger.note(TEXTLESS)
            continue
        examples.append(Scored(*both, score, where))
    return examples


def read_related(table: Table, finder: Finder, ledger: Ledger) -> list[Related]:
    """Texts that belong together, and perhaps some that do not: in a cell, a list or columns."""
    anchor, positives = finder.needed("anchor"), finder.several("positive")
    if not positives:
        finder.needed("positive")  # says what is missing
    negatives = finder.several("negative")
    examples = []
    for row in table.rows:
        where = table.where(row)
        near, far = (
            [text for name in names for text in _texts(row.cells.get(name), where, name)]
            for names in (positives, negatives)
        )
        if is_absent(row.cells.get(anchor)) or not near:
            ledger.note(TEXTLESS)
            continue
        query = text_cell(row.cells[anchor], where, anchor)
        first, more = (far[0], far[1:]) if far else (None, [])
        examples.append(Related(query, near[0], first, where, tuple(near[1:]), tuple(more)))
    return examples


def _texts(value: Any, where: Where, column: str) -> list[str]:
    """The texts of a cell: one, or those of a list, which a csv file spells as JSON."""
    if isinstance(value, str) and value.startswith('["') and value.endswith('"]'):
        value = list_cell(value, where, column)
    cells = value if isinstance(value, list | tuple) else [value]
    return [text_cell(one, where, column) for one in cells if not is_absent(one)]


def read_tagged(
    table: Table, finder: Finder, ledger: Ledger, names: Sequence[str] | None
) -> list[Tagged]:
    """Rows with a list of words and a list of tags."""
    words, tags = finder.needed("tokens"), finder.known("tags")
    classes = _classes(table, tags, names)
    examples = []
    for row in table.rows:
        where = table.where(row)
        if is_absent(row.cells.get(words)):
            ledger.note(TEXTLESS)
            continue
        spelled = words_cell(row, where, words)
        if not spelled:
            ledger.note("sentences without words, left out")
            continue
        marked = None
        if tags is not None and not is_absent(row.cells.get(tags)):
            cells = list_cell(row.cells[tags], where, tags)
            if len(cells) != len(spelled):
                raise BertsmithError(
                    f"{where}: {len(spelled)} words in {words!r}, {len(cells)} tags in {tags!r}"
                )
            named = [_label(tag, where, tags, classes) for tag in cells]
            if None in named:
                raise BertsmithError(
                    f"{where}: word {named.index(None) + 1} has no tag in {tags!r}"
                )
            marked = tuple(str(name) for name in named)
        text, offsets = joined(spelled)
        examples.append(Tagged(text, spelled, offsets, marked, where))
    return examples


def read_annotated(table: Table, finder: Finder, ledger: Ledger, column: str) -> list[Annotated]:
    """Texts whose entities are marked by characters."""
    finder.note("spans", column)
    text = finder.needed("text")
    examples = []
    for row in table.rows:
        where = table.where(row)
        if is_absent(row.cells.get(text)):
            ledger.note(TEXTLESS)
            continue
        spelled = text_cell(row.cells[text], where, text)
        if not spelled.strip():
            ledger.note("sentences without words, left out")
            continue
        spans = read_spans(spelled, row.cells.get(column), where, column, ledger)
        examples.append(Annotated(spelled, spans, where))
    return examples


def words_cell(row: Row, where: Where, column: str) -> tuple[str, ...]:
    """The words of a row; Prodigy's tokens are objects with a text."""
    cells = list_cell(row.cells.get(column), where, column)
    plain_words = (one.get("text") if isinstance(one, dict) else one for one in cells)
    return tuple(text_cell(word, where, column) for word in plain_words)


# ------------------------------------------------------------------ cells


def _label(value: Any, where: Where, column: str, classes: Sequence[str] | None) -> str | None:
    """A label by its name: numbers are looked up in the names of classes, where there are some."""
    if is_absent(value):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and parse_whole(value) is not None:
        value = int(value)
    name = text_cell(value, where, column).strip()
    number = parse_whole(name) if classes else None
    if classes and number is not None and re.fullmatch(r"-1|[0-9]+", name):
        if number >= len(classes):
            raise BertsmithError(f"{where}: label {number}, but there are {len(classes)} names")
        return classes[number] if number >= 0 else None
    return name or None


def _class(value: Any, where: Where, column: str, classes: Sequence[str] | None) -> str | None:
    """A label; none where it says that there is none, unless that is the name of a class."""
    name = _label(value, where, column, classes)
    return None if name in ABSENT and name not in (classes or ()) else name


def _classes(table: Table, column: str | None, names: Sequence[str] | None) -> Sequence[str] | None:
    """The names of a column's numbers: as given, or as the file itself says."""
    return names or (table.classes.get(column) if column else None)


def _all_hidden(table: Table, column: str) -> bool:
    """Is every label -1, which is how test files of known benchmarks hide them?"""
    return all(str(row.cells.get(column)) == "-1" for row in table.rows)


def _flags(table: Table, texts: set[str | None]) -> list[str]:
    """The columns that hold only 0 and 1."""
    flags = {name: None for name in table.names if name not in texts}
    for row in table.rows:
        for name in list(flags):
            value = row.cells.get(name)
            if not isinstance(value, bool | int | float | str) or str(value)[:6] not in BINARY:
                del flags[name]
    return list(flags)


BINARY = {"0", "1", "0.0", "1.0", "True", "False"}


def _separator(table: Table, column: str) -> str:
    """What stands between labels of one cell; a blank where nothing needs to."""
    values = [value for value in sample(table, column, len(table.rows)) if isinstance(value, str)]
    written = [value for value in values if not value.strip().startswith("[")]
    return next((mark for mark in SEPARATORS if any(mark in value for value in written)), " ")


def _several(value: Any, where: Where, column: str, separator: str) -> list[Any]:
    if isinstance(value, str) and not value.strip().startswith("["):
        return value.split(separator) if separator.strip() else [value]
    if isinstance(value, int | float):
        return [value]
    return list_cell(value, where, column)
