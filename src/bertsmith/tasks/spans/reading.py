"""Rows of texts, or of words, with labelled spans that may overlap or lie in one another."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from bertsmith.data.columns import Finder
from bertsmith.data.tables import Row, Where, is_absent, list_cell, sample, text_cell
from bertsmith.errors import BertsmithError
from bertsmith.numbers import parse_whole
from bertsmith.tasks.cells import TEXT, TextReading
from bertsmith.tasks.labelling import MarkSpans
from bertsmith.tasks.reading import OneText, Rows, TaskExample, TaskGuess
from bertsmith.tasks.tagging.examples import CharacterSpan, joined, read_spans
from bertsmith.tasks.tagging.reading import spans_column


@dataclass(frozen=True, slots=True)
class Spanned(OneText):
    """A text with labelled spans of characters."""

    spans: tuple[CharacterSpan, ...] | None  # start, end and label; None: not annotated
    where: Where

    @property
    def labelled(self) -> bool:
        return self.spans is not None

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(label for _, _, label in self.spans or ())


class SpansReading(TextReading):
    """Labelled spans of a text."""

    name, order, about = "spans", 35, "labelled spans that may overlap"
    pairs = False
    labelling = MarkSpans(overlap=True)
    roles: ClassVar = {
        "text": TEXT,
        "tokens": ("tokens", "words", "sentence"),
        "spans": ("spans", "entities", "ents", "entity_mentions", "label", "labels"),
    }

    def suits(self, finder: Finder) -> TaskGuess | None:
        """Tables with spans that tags cannot express; others are for tagging, which is faster."""
        column, what = spans_column(finder), "texts"
        if column is None and (column := _word_spans(finder)):
            what = "words"
        if column is None:
            return None
        cells = (_borders(value) for value in sample(finder.table, column, len(finder.table.rows)))
        if what == "words" or any(overlaps(spans) for spans in cells):
            how = " that overlap" if what == "texts" else ""
            return TaskGuess(1.01, f"it has {what} with spans{how}")
        return None

    def read(self, rows: Rows, labelled: bool) -> list[Spanned | None]:
        finder, examples = rows.finder, list[Spanned | None]()
        column = spans_column(finder)
        words = None if column else _word_spans(finder)
        place = finder.needed("tokens" if words else "text")
        column = finder.note("spans", column or words or finder.needed("spans"))
        for row, where in rows:
            if is_absent(row.cells.get(place)):
                examples.append(None)
            elif words:
                examples.append(_in_words(row, where, place, column))
            else:
                text = text_cell(row.cells[place], where, place)
                spans = read_spans(text, row.cells.get(column), where, column, rows.ledger)
                examples.append(Spanned(text, spans, where))
        return examples

    def inputs(self, rows: Rows) -> list[Any | None]:
        if _word_spans(rows.finder) is None:
            return super().inputs(rows)
        place = rows.finder.needed("tokens")
        return [
            None if is_absent(row.cells.get(place)) else _in_words(row, where, place, None)
            for row, where in rows
        ]

    def unlabelled(self, text: str, pair: str | None, where: Where) -> TaskExample:
        return Spanned(text, None, where)


def overlaps(spans: Sequence[tuple[int, int]]) -> bool:
    """Does a span begin before the one before it ends?"""
    ordered = sorted(set(spans))
    return any(right[0] < left[1] for left, right in pairwise(ordered))


def _borders(value: Any) -> list[tuple[int, int]]:
    """The start and end of each span of a cell; values without both are skipped."""
    borders = []
    for one in value if isinstance(value, list | tuple) else ():
        if isinstance(one, dict):
            one = (one.get("start", one.get("start_offset")), one.get("end", one.get("end_offset")))
        if isinstance(one, list | tuple) and len(one) >= 2:
            start, end = parse_whole(one[0]), parse_whole(one[1])
            borders += [(start, end)] if start is not None and end is not None else []
    return borders


def _word_spans(finder: Finder) -> str | None:
    """The column of spans of words: objects with a type, beside a list of words."""
    if finder.given.keys() & {"tags"} or finder.peek("tokens") is None:
        return None
    for name in finder.fresh().candidates("spans"):
        values = [one for one in sample(finder.table, name) if isinstance(one, list) and one]
        spans = [one for value in values for one in value]
        if spans and all(isinstance(one, dict) and {"start", "end"} <= one.keys() for one in spans):
            return name
    return None


def _in_words(row: Row, where: Where, place: str, column: str | None) -> Spanned:
    cells = list_cell(row.cells[place], where, place)
    words = tuple(text_cell(word, where, place) for word in cells)
    text, offsets = joined(words)
    value = None if column is None else row.cells.get(column)
    if value is None:
        return Spanned(text, None, where)
    spans = set()
    for one in value:
        label = one.get("type", one.get("label"))
        start, end = parse_whole(one["start"]), parse_whole(one["end"])
        if start is None or end is None or not 0 <= start < end <= len(words):
            raise BertsmithError(
                f"{where}: {column!r} has a span from {one['start']!r} to {one['end']!r}, but "
                f"there are {len(words)} words; end is the number of the word behind it"
            )
        if not isinstance(label, str) or not label.strip():
            raise BertsmithError(f"{where}: {column!r} has a span without a type")
        spans.add((offsets[start][0], offsets[end - 1][1], label.strip()))
    return Spanned(text, tuple(sorted(spans)), where)


READING = SpansReading()
