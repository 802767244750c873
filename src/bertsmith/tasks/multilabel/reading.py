"""Rows of texts with any number of labels: lists, separators, or a column for each label."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from bertsmith.data.columns import Finder, is_list
from bertsmith.data.tables import Row, Table, Where, is_absent, list_cell, sample
from bertsmith.tasks.cells import (
    TextReading,
    class_cell,
    class_names,
    labelled_texts,
    text_columns,
    texts_and_label,
)
from bertsmith.tasks.labelling import Choose
from bertsmith.tasks.reading import Rows, TaskGuess, TextExample

SEPARATORS = "|;,"
BINARY = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}


@dataclass(frozen=True, slots=True)
class MultiLabelled(TextExample):
    """A text, or a pair, to which any number of labels apply."""

    labels: tuple[str, ...] | None  # None: not in the file; (): none applies
    where: Where

    @property
    def gold(self) -> frozenset[str] | None:
        return None if self.labels is None else frozenset(self.labels)

    @property
    def label_names(self) -> tuple[str, ...]:
        return self.labels or ()


class MultilabelReading(TextReading):
    """Any number of labels for a text or a pair of texts."""

    name, order, about = "multilabel", 20, "any number of labels"
    target = "label"
    classes = True
    several = True
    labelling = Choose("labels", several=True)

    def suits(self, finder: Finder) -> TaskGuess | None:
        contents = texts_and_label(finder)
        if contents is None:
            return None
        what, column = contents
        if column is None:
            flags = _flags(finder.table, finder.used)
            why = f"it has {what}, and {len(flags)} columns of 0 and 1"
            return TaskGuess(0.45, why) if len(flags) > 1 else None
        if is_list(finder.table, column):
            return TaskGuess(0.45, f"it has {what} and lists of labels")
        mark, cells = _separator(finder.table, column)
        names = {name.strip() for cell in cells for name in cell.split(mark)} if mark else set()
        # Combinations of few names; a mark that is part of labels ("Paris, France") leaves more.
        if not 1 < len(names) < len(set(cells)) or all(map(str.isdecimal, names)):
            return None
        return TaskGuess(0.45, f"it has {what}, and labels between {mark}")

    def read(self, rows: Rows, labelled: bool) -> list[MultiLabelled | None]:
        """Texts with lists of labels, labels between separators, or columns of 0 and 1."""
        table, finder = rows.table, rows.finder
        column = finder.named("label")
        texts = text_columns(finder)
        column = column or finder.known("label")
        flags = [] if column else _flags(table, finder.used)
        if flags:
            finder.note("label", f"{len(flags)} columns of 0 and 1: {', '.join(flags)}", *flags)
        separator = rows.separator or (_separator(table, column)[0] if column else "")
        rows.separator = separator
        if column and separator:
            finder.note("label", f"{column}, split at {separator}", column)
        classes = class_names(rows, column)

        def labels(row: Row, where: Where) -> tuple[str, ...] | None:
            if flags:
                return tuple(name for name in flags if BINARY[str(row.cells[name]).lower()])
            if column is None or is_absent(value := row.cells.get(column)):
                return None
            cells = _several(value, where, column, separator)
            names = (class_cell(cell, where, column, classes) for cell in cells)
            return tuple(dict.fromkeys(name for name in names if name is not None))

        return labelled_texts(rows, texts, labels, MultiLabelled)


def _flags(table: Table, used: Collection[str]) -> list[str]:
    flags = {name: None for name in table.names if name not in used}
    for row in table.rows:
        for name in list(flags):
            value = row.cells.get(name)
            if (
                not isinstance(value, bool | int | float | str)
                or str(value)[:6].lower() not in BINARY
            ):
                del flags[name]
    return list(flags)


def _separator(table: Table, column: str) -> tuple[str, list[str]]:
    """What is between the labels of a cell, or nothing; and the cells that are no lists."""
    values = sample(table, column, len(table.rows))
    cells = [v for v in values if isinstance(v, str) and not v.strip().startswith("[")]
    return next((mark for mark in SEPARATORS if any(mark in v for v in cells)), ""), cells


def _several(value: Any, where: Where, column: str, separator: str) -> list[Any]:
    if isinstance(value, str) and not value.strip().startswith("["):
        return value.split(separator) if separator else [value]
    if isinstance(value, int | float):
        return [value]
    return list_cell(value, where, column)


READING = MultilabelReading()
