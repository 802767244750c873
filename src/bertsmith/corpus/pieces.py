"""Input files split into pieces of work, in bounded memory.

A piece is a few megabytes of whole documents as raw bytes, which workers decode and parse.
The same files always give the same pieces, so that finished ones can be kept.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bertsmith.corpus.files import InputFile, Kind
from bertsmith.errors import BertsmithError
from bertsmith.files import cause, import_package, open_bytes, reading

BLANK = re.compile(rb"\n[ \t\r\f\v]*\n")
BLOCK = 1 << 20
LARGEST = 64 << 20  # bytes up to which a plain-text document is kept whole
# Where to cut the buffer of a stream (0: nowhere), after more was read if needed; in a document?
FindEnd = Callable[[IO[bytes], bytearray, int], tuple[int, bool]]


@dataclass(frozen=True)
class PiecePart:
    """Whole documents of one file, as bytes."""

    path: str
    kind: Kind
    line: int  # its first line (of tables: row), from 1
    data: bytes
    lengths: tuple[int, ...] = ()  # of tables: the bytes of each row's text, -1 for none
    cut_off: bool = False  # its last document continues in the next part


@dataclass(frozen=True)
class Piece:
    """One piece of work."""

    number: int
    parts: tuple[PiecePart, ...]
    position: int  # bytes of input files read up to and including this piece


def cut(files: Iterable[InputFile], size: int, text_field: str) -> Iterator[Piece]:
    """Cut files into pieces of about `size` bytes, of several files where those are small."""
    number, held, finished = 0, 0, 0  # the piece, its bytes, the bytes of finished files
    parts: list[PiecePart] = []
    position = 0
    for file in files:
        for part, place in _parts(file, size, text_field):
            if parts and held + len(part.data) > size:
                yield Piece(number, tuple(parts), position)
                number, held, parts = number + 1, 0, []
            parts.append(part)
            held += len(part.data)
            position = finished + place
        finished += file.size
    if parts:
        yield Piece(number, tuple(parts), finished)


def _parts(file: InputFile, size: int, text_field: str) -> Iterator[tuple[PiecePart, int]]:
    """The parts of a file, each with how much of the file has been read."""
    path = Path(file.path)
    with reading(path):
        if file.kind == "table":
            yield from _rows(file, size, text_field)
            return
        with open_bytes(path) as (stream, raw):
            line = 1
            if file.kind == "whole":  # one document, cut only if it is very large
                chunks = _chunks(stream, LARGEST + 1, lambda _, held, __: (_forced(held), True))
            else:
                chunks = _chunks(stream, size, _document_end if file.kind == "text" else _line_end)
            for data, cut_off in chunks:
                yield PiecePart(file.path, file.kind, line, data, cut_off=cut_off), raw.tell()
                line += data.count(b"\n")


def _chunks(stream: IO[bytes], size: int, find_end: FindEnd) -> Iterator[tuple[bytes, bool]]:
    """Yield bytes of a stream, and whether a document had to be cut at their end."""
    held = bytearray()
    while _fill(stream, held, size):
        end, cut_off = find_end(stream, held, size)
        if not end:
            break
        yield bytes(held[:end]), cut_off
        del held[:end]
    if held:
        yield bytes(held), False


def _document_end(stream: IO[bytes], held: bytearray, size: int) -> tuple[int, bool]:
    """The end of a blank line; a document larger than a piece is read on until it ends."""
    end = _last_blank(held, size)
    while not end and _fill(stream, held, len(held) + BLOCK):
        if blank := BLANK.search(held, max(0, len(held) - 2 * BLOCK)):
            return blank.end(), False
        if forced := _forced(held):
            return forced, True
    return end, False


def _line_end(stream: IO[bytes], held: bytearray, size: int) -> tuple[int, bool]:
    end = held.rfind(b"\n", 0, size) + 1
    while not end and _fill(stream, held, len(held) + BLOCK):
        end = held.find(b"\n", len(held) - BLOCK) + 1
    return end, False


def _last_blank(held: bytearray, size: int) -> int:
    """Return the end of the last blank line within the first `size` bytes; 0 if there is none."""
    for mark in (b"\n\n", b"\n\r\n"):
        if (place := held.rfind(mark, 0, size)) >= 0:
            return place + len(mark)
    return max((match.end() for match in BLANK.finditer(held, 0, size)), default=0)


def _forced(held: bytearray) -> int:
    """Return where to cut a document that is too large for memory: after a line or a word."""
    if len(held) < LARGEST:
        return 0
    for mark in (b"\n", b" "):
        if (place := held.rfind(mark, LARGEST // 2, LARGEST)) >= 0:
            return place + 1
    end = LARGEST
    while held[end - 1] & 0xC0 == 0x80 and end > LARGEST - 4:  # inside a character
        end -= 1
    return end - (held[end - 1] >= 0xC0)


def _fill(stream: IO[bytes], held: bytearray, size: int) -> bool:
    """Read until the buffer has this many bytes; returns whether there were enough."""
    while len(held) < size:
        data = stream.read(min(BLOCK, size - len(held)))
        if not data:
            return False
        held += data
    return True


def _rows(file: InputFile, size: int, text_field: str) -> Iterator[tuple[PiecePart, int]]:
    pyarrow = import_package("pyarrow", f"{file.path}: parquet files need pyarrow")
    from pyarrow import parquet

    try:
        # Pages are read one after the other: a row group may be larger than memory.
        with parquet.ParquetFile(file.path, buffer_size=BLOCK, pre_buffer=False) as table:
            _column(file.path, table, text_field)
            total = max(1, table.metadata.num_rows)
            line, held = 1, 0
            texts: list[bytes | None] = []
            for batch in table.iter_batches(256, columns=[text_field], use_threads=False):
                new = [None if t is None else t.encode() for t in batch.column(0).to_pylist()]
                texts += new
                held += sum(len(text) for text in new if text)
                if held >= size // 4:
                    yield _part(file, line, texts), file.size * (line + len(texts)) // total
                    line, held, texts = line + len(texts), 0, []
            if texts:
                yield _part(file, line, texts), file.size
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise BertsmithError(f"{file.path}: cannot be read ({cause(error)})") from error


def _column(path: str, table: Any, text_field: str) -> None:
    import pyarrow

    schema = table.schema_arrow
    if text_field not in schema.names:
        known = ", ".join(schema.names)
        raise BertsmithError(f"{path}: there is no column {text_field!r}; there are {known}")
    if schema.names.count(text_field) > 1:
        raise BertsmithError(f"{path}: two columns are called {text_field!r}")
    kind = schema.field(text_field).type
    if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
        raise BertsmithError(f"{path}: the column {text_field!r} holds {kind}, not strings")


def _part(file: InputFile, line: int, texts: list[bytes | None]) -> PiecePart:
    lengths = tuple(-1 if text is None else len(text) for text in texts)
    return PiecePart(file.path, "table", line, b"".join(filter(None, texts)), lengths)
