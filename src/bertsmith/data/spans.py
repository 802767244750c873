"""Annotated spans of characters (spaCy, Prodigy, doccano) ↔ words with BIO tags."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bertsmith.data.examples import Where
from bertsmith.data.tables import Table
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.numbers import parse_whole

WORD = re.compile(r"\w+(?:['’_]\w+)*|[^\w\s]", re.UNICODE)  # words, and each mark alone
SPAN_FORMATS = ("spacy", "prodigy", "doccano")
DECISION = "answer"
Offsets = tuple[tuple[int, int], ...]


def accepted(table: Table, ledger: Ledger) -> tuple[Table, str]:
    """The rows that an annotator accepted, and the column that says so, if there is one.

    Prodigy writes "accept", "reject" or "ignore" into the column "answer" of every row.
    """
    decisions = {row.cells.get(DECISION) for row in table.rows if DECISION in table.names}
    if not decisions or not decisions <= {"accept", "reject", "ignore"}:
        return table, ""
    rows = [row for row in table.rows if row.cells[DECISION] == "accept"]
    ledger.note("rows that the annotator did not accept, left out", len(table.rows) - len(rows))
    return replace(table, rows=rows), DECISION


def word_offsets(text: str) -> Offsets:
    """Where the words of a text begin and end; every punctuation mark is a word."""
    return tuple(match.span() for match in WORD.finditer(text))


def tags_of_spans(
    text: str, value: Any, where: Where, column: str, ledger: Ledger
) -> tuple[Offsets, tuple[str, ...] | None]:
    """The words of a text and their BIO tags; None for the tags where there are no annotations.

    A span takes every word that it touches. Of spans that overlap, the longest is kept.
    """
    offsets = word_offsets(text)
    if value is None:
        return offsets, None
    if not isinstance(value, list | tuple):
        raise BertsmithError(f"{where}: {column!r} is not a list of spans")
    spans = [_span(one, where, column) for one in value]
    tags = ["O"] * len(offsets)
    starts, ends = [start for start, _ in offsets], [end for _, end in offsets]
    for start, end, label in sorted(spans, key=lambda span: span[0] - span[1]):
        first, last = bisect_right(ends, start), bisect_left(starts, end)
        if start < 0 or end > len(text):
            ledger.note("spans outside their text, left out")
            continue
        if start >= end or first >= last:
            ledger.note("spans that contain no word, left out")
            continue
        if any(tag != "O" for tag in tags[first:last]):
            ledger.note("spans that overlap a longer one, left out")
            continue
        if (starts[first], ends[last - 1]) != (start, end):
            ledger.note("spans moved to the borders of words")
        tags[first:last] = [f"B-{label}", *[f"I-{label}"] * (last - first - 1)]
    return offsets, tuple(tags)


def _span(value: Any, where: Where, column: str) -> tuple[int, int, str]:
    """Start, end and label, from a list or an object."""
    if isinstance(value, Mapping):
        start = value.get("start", value.get("start_offset"))
        end = value.get("end", value.get("end_offset"))
        value = (start, end, value.get("label"))
    if not isinstance(value, list | tuple) or len(value) < 3:
        raise BertsmithError(f"{where}: {column!r} has a span that is not start, end and label")
    first, last, label = parse_whole(value[0]), parse_whole(value[1]), value[2]
    if first is None or last is None or not isinstance(label, str) or not label.strip():
        raise BertsmithError(f"{where}: {column!r} has a span that is not start, end and label")
    return first, last, label.strip()


def spans_record(
    kind: str, text: str, entities: Sequence[Mapping[str, Any]], others: Mapping[str, Any]
) -> Any:
    """A text and its entities as spaCy, Prodigy or doccano reads them back; `others` go along."""
    listed = [[one["start"], one["end"], one["label"]] for one in entities]
    if kind == "spacy":
        return [text, {"entities": listed}]
    if kind == "doccano":
        rest = {key: value for key, value in others.items() if key not in ("text", "label")}
        return {"text": text, "label": listed, **rest}
    offsets = word_offsets(text)
    starts, ends = [start for start, _ in offsets], [end for _, end in offsets]
    tokens = [
        {"text": text[start:end], "start": start, "end": end, "id": number}
        for number, (start, end) in enumerate(offsets)
    ]
    spans = []
    for start, end, label in listed:
        first = min(bisect_right(ends, start), max(0, len(offsets) - 1))
        last = max(first, bisect_left(starts, end) - 1)
        span = {"start": start, "end": end, "label": label}
        spans.append({**span, "token_start": first, "token_end": last})
    meta = {key: value for key, value in others.items() if key not in ("text", "tokens", "spans")}
    return {"text": text, "tokens": tokens, "spans": spans, **({"meta": meta} if meta else {})}
