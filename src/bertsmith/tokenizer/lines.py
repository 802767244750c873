"""Lines of text files, plain or compressed, in bounded memory."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from encodings.utf_8_sig import IncrementalDecoder
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError

LONGEST = 1 << 20  # bytes; a longer line is read in pieces
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


def read_lines(files: Iterable[str | Path]) -> Iterator[str]:
    """Yield the lines of UTF-8 files, one after the other, without their ends."""
    for file in files:
        yield from _lines(Path(file))


def _lines(path: Path) -> Iterator[str]:
    decode = IncrementalDecoder().decode
    number = 1
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as stream:
            while raw := stream.readline(LONGEST):
                yield decode(raw).rstrip("\r\n")
                number += raw.endswith(b"\n")
            decode(b"", final=True)
    except UnicodeDecodeError as error:
        value = error.object[error.start]
        raise BertsmithError(
            f"{path}, line {number}: the byte 0x{value:02x} is not UTF-8 text"
        ) from None
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise BertsmithError(f"{path} cannot be read: {error}") from error
