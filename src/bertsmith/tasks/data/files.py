"""The text of a data file, plain or compressed, or one line that says why not."""

from __future__ import annotations

from pathlib import Path

from bertsmith.errors import BertsmithError
from bertsmith.tokenizer.streams import UNREADABLE, inner, open_bytes

WIDE = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}  # how files of other encodings begin


def read_bytes(path: Path) -> bytes:
    """All of a file, unpacked."""
    try:
        with open_bytes(path) as (stream, _):
            content = stream.read()
    except UNREADABLE as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BertsmithError(f"{path} cannot be read: {why}") from error
    if not content.strip():
        raise BertsmithError(f"{path} is empty")
    return content


def read_text(path: Path) -> str:
    """All of a UTF-8 file; a byte that is not names its line."""
    content = read_bytes(path)
    wide = WIDE.get(content[:2])
    if wide:
        raise BertsmithError(f"{path} is {wide} text: save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        value = error.object[error.start]
        raise BertsmithError(
            f"{path}, line {line}: the byte 0x{value:02x} is not UTF-8 text; "
            "is a part of the file in another encoding? Save all of it as UTF-8"
        ) from None


def numbered_lines(text: str) -> list[tuple[int, str]]:
    """The lines of a text from 1, without their ends; only line feeds end a line."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [(number, line.removesuffix("\r")) for number, line in enumerate(lines, 1)]


def suffix_of(path: Path) -> str:
    """The ending that says what a file is, without that of the compression."""
    return inner(path).suffix.lower()
