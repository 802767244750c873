"""Files as streams of bytes, plain or compressed: .gz, .xz and .zst."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from bertsmith.errors import BertsmithError

PACKED = (".gz", ".xz", ".zst")
# What reading raises where a file is missing, damaged or cut short.
UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error)


@contextmanager
def open_bytes(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a file: the stream of its content, and the file itself, which tells how far one is."""
    with path.open("rb") as file, _content(path, file) as stream:
        yield stream, file


def _content(path: Path, file: IO[bytes]) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.GzipFile(fileobj=file))
    if path.suffix == ".xz":
        return lzma.LZMAFile(file)
    if path.suffix == ".zst":
        return io.BufferedReader(_Frames(path, file), 1 << 17)
    return file


def inner(path: Path) -> Path:
    """A file's name without what only says how it is compressed."""
    return path.with_suffix("") if path.suffix in PACKED else path


class _Frames(io.RawIOBase):
    """The content of Zstandard frames; the library's own reader takes half a file for a whole."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        try:
            import zstandard
        except ImportError:
            raise BertsmithError(
                f"{path}: .zst files need zstandard: pip install zstandard"
            ) from None
        self.file = file
        self.library = zstandard
        self.frame: Any = None  # the one that is being read
        self.ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.ready:
            data = self.file.read(1 << 16)
            if not data:
                if self.frame is not None:
                    raise EOFError("it ends in the middle of a Zstandard frame")
                return 0
            self._feed(data)
        count = min(len(buffer), len(self.ready))
        buffer[:count] = self.ready[:count]
        self.ready = self.ready[count:]
        return count

    def _feed(self, data: bytes) -> None:
        parts = []
        while data:
            if self.frame is None:
                self.frame = self.library.ZstdDecompressor().decompressobj()
            try:
                parts.append(self.frame.decompress(data))
            except self.library.ZstdError as error:
                raise OSError(f"not Zstandard data ({error})") from None
            data = b""
            if self.frame.eof:
                data, self.frame = self.frame.unused_data, None
        self.ready = b"".join(parts)
