"""The text of a data file, plain or compressed, or one line that says why not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bertsmith.errors import BertsmithError
from bertsmith.files import UNREADABLE, cause, inner, open_bytes

WIDE = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}  # how files of other encodings begin


def read_bytes(path: Path) -> bytes:
    """All of a file, unpacked."""
    try:
        with open_bytes(path) as (stream, _):
            content = stream.read()
    except UNREADABLE as error:
        raise _unreadable(path, error) from error
    if not content.strip():
        raise BertsmithError(f"{path} is empty")
    return content


def read_text(path: Path) -> str:
    """All of a UTF-8 file; a byte that is not names its line."""
    return _decoded(path, read_bytes(path))


class Stream:
    """The lines of a UTF-8 file, read only as they are asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.share = 0.0  # of the file that has been read

    def __iter__(self) -> Iterator[str]:
        """Every line with its end."""
        blank = True
        try:
            size = max(1, self.path.stat().st_size)
            with open_bytes(self.path) as (stream, file):
                for number, raw in enumerate(stream, 1):
                    blank = blank and not raw.strip()
                    # A packed file tells how far it is by its own bytes.
                    self.share = file.tell() / size
                    yield _decoded(self.path, raw, number)
        except UNREADABLE as error:
            raise _unreadable(self.path, error) from error
        if blank:
            raise BertsmithError(f"{self.path} is empty")

    def numbered(self) -> Iterator[tuple[int, str]]:
        """Every line from 1, without its end."""
        for number, line in enumerate(self, 1):
            yield number, line.removesuffix("\n").removesuffix("\r")

    def head(self, most: int = 1000) -> str:
        """The first lines; where there are more, up to one after which no quote is open."""
        lines = list(islice(self, most + 1))
        if len(lines) > most:
            lines.pop()
            while lines and sum(line.count('"') for line in lines) % 2:
                lines.pop()
        return "".join(lines)


def _decoded(path: Path, content: bytes, number: int = 1) -> str:
    """The text of bytes that begin on this line of a file."""
    wide = WIDE.get(content[:2]) if number == 1 else None
    if wide:
        raise BertsmithError(f"{path} is {wide} text: save it as UTF-8")
    try:
        return content.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + number
        value = error.object[error.start]
        raise BertsmithError(
            f"{path}, line {line}: the byte 0x{value:02x} is not UTF-8 text; "
            "is a part of the file in another encoding? Save all of it as UTF-8"
        ) from None


def _unreadable(path: Path, error: BaseException) -> BertsmithError:
    return BertsmithError(f"{path} cannot be read: {cause(error)}")


def numbered_lines(text: str) -> list[tuple[int, str]]:
    """The lines of a text from 1, without their ends; only line feeds end a line."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [(number, line.removesuffix("\r")) for number, line in enumerate(lines, 1)]


def suffix_of(path: Path) -> str:
    """The ending that says what a file is, without that of the compression."""
    return inner(path).suffix.lower()
