"""The documents of a piece of work: raw bytes → lines of text."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from bertsmith.corpus.files import find_files
from bertsmith.corpus.pieces import PiecePart, cut
from bertsmith.errors import BertsmithError
from bertsmith.files import not_utf8, whole_characters
from bertsmith.ledger import Ledger

Document = list[str]  # its non-blank lines, stripped
PIECE = 4 << 20  # bytes that are read at once
MARK = b"\xef\xbb\xbf"  # byte order mark


def text_lines(
    files: Iterable[str | Path], text_field: str = "text", ledger: Ledger | None = None
) -> Iterator[str]:
    """Yield the lines of text, jsonl and parquet files, or folders of them, as `prepare` does.

    What is left out is counted in the `ledger`.
    """
    ledger = ledger or Ledger()
    inputs, left = find_files(files, pipes=True)
    ledger.note("files of other kinds, left out", left)
    for piece in cut(inputs, PIECE, text_field):
        for part in piece.parts:
            for document in read_documents(part, text_field, ledger):
                yield from document


def read_documents(part: PiecePart, text_field: str, ledger: Ledger) -> Iterator[Document]:
    """Yield the documents of a part; records without text are counted and skipped."""
    ledger.note("documents larger than 64 MiB, cut", part.cut_off)
    if part.kind == "text":
        yield from _parted_by_blank_lines(_decode(part))
        return
    texts: Iterator[str | None]
    if part.kind == "whole":
        texts = iter([_decode(part)])
    else:
        texts = _records(part, text_field) if part.kind == "records" else _rows(part)
    for text in texts:
        if text is None:
            ledger.note("records without a text (null), left out")
        elif document := lines_of(_spelled(text, ledger)):
            yield document
        else:
            ledger.note("empty documents, left out")


def lines_of(text: str) -> Document:
    """Return the non-blank lines of a text."""
    return [line for raw in text.split("\n") if (line := raw.strip())]


def _parted_by_blank_lines(text: str) -> Iterator[Document]:
    document: Document = []
    for raw in text.split("\n"):
        if line := raw.strip():
            document.append(line)
        elif document:
            yield document
            document = []
    if document:
        yield document


def _decode(part: PiecePart) -> str:
    data = part.data.removeprefix(MARK) if part.line == 1 else part.data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = part.line + data.count(b"\n", 0, error.start)
        raise not_utf8(part.path, line, data[error.start]) from None


def _records(part: PiecePart, field: str) -> Iterator[str | None]:
    for number, line in enumerate(_decode(part).split("\n"), part.line):
        if line.strip():
            where = f"{part.path}, line {number}"
            try:
                text = json.loads(line)[field]
            except (ValueError, LookupError, TypeError, RecursionError):
                raise BertsmithError(f'{where}: not a JSON object with a "{field}"') from None
            if text is not None and not isinstance(text, str):
                raise BertsmithError(f'{where}: "{field}" is not a string')
            yield text


def _rows(part: PiecePart) -> Iterator[str | None]:
    start = 0
    for length in part.lengths:
        end = start + max(0, length)
        yield None if length < 0 else part.data[start:end].decode("utf-8")
        start = end


def _spelled(text: str, ledger: Ledger) -> str:
    """Replace lone surrogates, which JSON can escape but UTF-8 text cannot contain."""
    whole = whole_characters(text)
    ledger.note("documents with halves of surrogate pairs, replaced", whole != text)
    return whole
