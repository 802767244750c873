"""Input files split into pieces of work, in bounded memory.

A piece is a few megabytes of whole documents as raw bytes, which workers decode and parse.
The same files always give the same pieces, so that finished ones can be kept.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bertsmith.corpus.files import InputFile, Kind
from bertsmith.errors import BertsmithError
from bertsmith.files import cause, import_package, open_bytes, reading

BLANK = re.compile(rb"\n[ \t\r\f\v]*\n")
BLOCK = 1 << 20
LARGEST = 64 << 20  # bytes up to which a plain-text document is kept whole


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
            for data, cut_off in READERS[file.kind](stream, size):
                yield PiecePart(file.path, file.kind, line, data, cut_off=cut_off), raw.tell()
                line += data.count(b"\n")


def _documents(stream: IO[bytes], size: int) -> Iterator[tuple[bytes, bool]]:
    """Yield bytes of text that end with a blank line, and whether a document had to be cut."""
    held = bytearray()
    while _fill(stream, held, size):
        end, forced = _last_blank(held, size), 0
        # A document larger than a piece: read on until it ends.
        while not end and not forced and _fill(stream, held, len(held) + BLOCK):
            blank = BLANK.search(held, max(0, len(held) - 2 * BLOCK))
            end = blank.end() if blank else 0
            forced = 0 if end else _forced(held)
        if not end and not forced:
            break
        yield bytes(held[: end or forced]), not end
        del held[: end or forced]
    if held:
        yield bytes(held), False


def _whole(stream: IO[bytes], size: int) -> Iterator[tuple[bytes, bool]]:
    """Yield the bytes of a file at once, or of a very large one in several parts."""
    held = bytearray()
    while _fill(stream, held, LARGEST + 1):
        end = _forced(held)
        yield bytes(held[:end]), True
        del held[:end]
    if held:
        yield bytes(held), False


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


def _lines(stream: IO[bytes], size: int) -> Iterator[tuple[bytes, bool]]:
    """Bytes of text that end with the end of a line."""
    held = bytearray()
    while _fill(stream, held, size):
        end = held.rfind(b"\n", 0, size) + 1
        while not end and _fill(stream, held, len(held) + BLOCK):
            end = held.find(b"\n", len(held) - BLOCK) + 1
        if not end:
            break
        yield bytes(held[:end]), False
        del held[:end]
    if held:
        yield bytes(held), False


def _fill(stream: IO[bytes], held: bytearray, size: int) -> bool:
    """Read until the buffer has this many bytes; returns whether there were enough."""
    while len(held) < size:
        data = stream.read(min(BLOCK, size - len(held)))
        if not data:
            return False
        held += data
    return True


READERS = {"text": _documents, "whole": _whole, "records": _lines}


def _rows(file: InputFile, size: int, text_field: str) -> Iterator[tuple[PiecePart, int]]:
    """The texts of a parquet file, some at a time."""
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
        message = f"{path}: there is no column {text_field!r}; there are {', '.join(schema.names)}"
        raise BertsmithError(message)
    if schema.names.count(text_field) > 1:
        raise BertsmithError(f"{path}: two columns are called {text_field!r}")
    kind = schema.field(text_field).type
    if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
        raise BertsmithError(f"{path}: the column {text_field!r} holds {kind}, not strings")


def _part(file: InputFile, line: int, texts: list[bytes | None]) -> PiecePart:
    lengths = tuple(-1 if text is None else len(text) for text in texts)
    return PiecePart(file.path, "table", line, b"".join(filter(None, texts)), lengths)
