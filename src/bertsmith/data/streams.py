"""The text of a file or of standard input: decompressed, decoded, line by line."""

import codecs
import gzip
import io
import lzma
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, TypeVar, cast

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import PACKED, ByteSource, bounded_lines, open_bytes, open_regular, reading

STANDARD_INPUT = Path("-")
HEAD = 1000  # lines that decide how a file is read
HEAD_SIZE = 4 << 20  # and at most so many characters of them
LARGEST_WHOLE = 512 << 20  # bytes of a format that can only be read whole
# Byte order marks; the longest first.
MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF8: "utf-8-sig"}
MARKS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
GZIP, XZ, ZSTANDARD = b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"  # first bytes
Text = TypeVar("Text", str, bytes)


class Stream:
    """The text of one source, opened on the first read and read only once; `head` looks ahead."""

    def __init__(self, path: Path, encoding: str | None = None) -> None:
        self.path, self.encoding = path, encoding and known_encoding(encoding)
        self.name = "standard input" if path == STANDARD_INPUT else str(path)
        self.share = 0.0  # of the file that has been read; stays 0 where the size is unknown
        self._ahead: list[str] = []
        self._rest: Iterator[str] | None = None

    def __iter__(self) -> Iterator[str]:
        """Every line with its end."""
        ahead, self._ahead = self._ahead, []
        return chain(ahead, self._lines())

    def numbered(self) -> Iterator[tuple[int, str]]:
        """Every line from 1, without its end."""
        for number, line in enumerate(self, 1):
            yield number, line.removesuffix("\n").removesuffix("\r")

    def head(self, most: int = HEAD) -> str:
        """The first lines; where there are more, up to one after which no quote is open."""
        size = sum(map(len, self._ahead))
        while len(self._ahead) < most and size < HEAD_SIZE:
            line = next(self._lines(), None)
            if line is None:
                return "".join(self._ahead)
            self._ahead.append(line)
            size += len(line)
        lines = self._ahead[:most]
        quotes, even = 0, 0
        for number, line in enumerate(lines, 1):
            quotes += line.count('"')
            even = number if quotes % 2 == 0 else even
        return "".join(lines[: even or None])

    def text(self) -> str:
        """All of the text, for formats that cannot be read in portions."""
        if self._rest is not None:  # a pipe whose first lines were looked at
            return self._limited("".join(self))
        content = self.content()
        if not content.strip():
            raise BertsmithError(f"{self.name} is empty")
        encoding = self.encoding or marked_encoding(content) or "utf-8"
        try:
            return content.decode(encoding)
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise self._undecodable(line, error, encoding) from None

    def content(self) -> bytes:
        """All bytes after decompression, within a limit."""
        with reading(self.name), self._opened() as stream:
            content = stream.read(LARGEST_WHOLE + 1)
        self.share = 1.0
        return self._limited(content)

    def is_utf8_after_all(self) -> bool:
        """Is a file UTF-8, though another encoding was named? That is named for several files."""
        pipe = self.path == STANDARD_INPUT or self.path.is_fifo()
        if self.encoding is None or self.encoding.startswith("utf") or pipe:
            return False
        with reading(self.name), self._opened() as stream:
            start = stream.read(1 << 20)
        self.share = 0.0
        try:
            codecs.getincrementaldecoder("utf-8")().decode(start)
        except UnicodeDecodeError:
            return False
        return not start.isascii()

    def _limited(self, content: Text) -> Text:
        if len(content) > LARGEST_WHOLE:
            fault = f"holds more than {LARGEST_WHOLE >> 20} MiB, and this format is read whole"
            advice = "convert it to .jsonl or .csv, which are read in portions"
            raise BertsmithError(f"{self.name}: {fault}; {advice}")
        return content

    def _lines(self) -> Iterator[str]:
        self._rest = self._rest or self._decoded_lines()
        return self._rest

    def _decoded_lines(self) -> Iterator[str]:
        blank = True
        with reading(self.name), self._opened() as opened:
            start, stream = _ahead(opened, 4)
            encoding = self.encoding or marked_encoding(start) or "utf-8-sig"
            if encoding.startswith(("utf-16", "utf-32")):
                stream, encoding = _buffered(_Recoded(stream, encoding)), "utf-8-sig"
            elif encoding == "utf-8":
                encoding = "utf-8-sig"
            for number, raw in enumerate(bounded_lines(stream, self.name), 1):
                blank = blank and not raw.strip()
                try:
                    yield raw.decode(encoding if number == 1 else encoding.removesuffix("-sig"))
                except UnicodeDecodeError as error:
                    raise self._undecodable(number, error, encoding) from None
        self.share = 1.0
        if blank:
            raise BertsmithError(f"{self.name} is empty")

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        with ExitStack() as stack:
            if self.path == STANDARD_INPUT:
                yield _unpacked(sys.stdin.buffer)
            elif self.path.is_fifo():
                yield _unpacked(stack.enter_context(open_regular(self.path)))
            else:
                content, file = stack.enter_context(open_bytes(self.path))
                yield _buffered(_Counted(content, self, file, self.path.stat().st_size))

    def _undecodable(self, line: int, error: UnicodeDecodeError, encoding: str) -> BertsmithError:
        place = f"{self.name}, line {line}: the byte 0x{error.object[error.start]:02x}"
        spelled = encoding.removesuffix("-sig").upper()
        advice = f"{setting_name('encoding')} names another one"
        if self.encoding is None:
            advice = "a file saved by Excel on Windows is often " + setting_name(
                "encoding", "cp1252"
            )
        return BertsmithError(f"{place} is not {spelled} text; {advice}")


def known_encoding(name: str) -> str:
    """The same encoding by its usual name, if it is one of text."""
    try:
        codec = codecs.lookup(name)
    except (LookupError, ValueError):
        raise BertsmithError(
            f"unknown encoding {name[:40]!r}; examples: utf-8, utf-16, cp1252, latin-1"
        ) from None
    if not getattr(codec, "_is_text_encoding", True):
        raise BertsmithError(f"{name!r} is not an encoding of text")
    return codec.name


def marked_encoding(start: bytes) -> str | None:
    """The encoding that a byte order mark announces."""
    return next((name for mark, name in MARKS.items() if start.startswith(mark)), None)


def _buffered(raw: io.RawIOBase) -> IO[bytes]:
    return cast(IO[bytes], io.BufferedReader(raw, 1 << 13))


class _Counted(ByteSource):
    """Bytes of a file's content; sets the share of the file that the stream has read."""

    def __init__(self, content: IO[bytes], stream: Stream, file: IO[bytes], size: int) -> None:
        self.content, self.stream, self.file, self.size = content, stream, file, max(1, size)

    def take(self, size: int) -> bytes:
        data = self.content.read(size)
        self.stream.share = min(1.0, self.file.tell() / self.size)
        return data


class _Recoded(ByteSource):
    """A stream of UTF-16 or UTF-32 as UTF-8, in which a line feed is one byte."""

    def __init__(self, raw: IO[bytes], encoding: str) -> None:
        self.raw, self.encoding, self.ready = raw, encoding, b""
        self.decoder = codecs.getincrementaldecoder(encoding)()

    def take(self, size: int) -> bytes:
        end = False
        while not self.ready and not end:
            data = self.raw.read(1 << 15)
            end = not data
            try:
                self.ready = self.decoder.decode(data, end).encode()
            except UnicodeError as error:
                raise OSError(f"not {self.encoding} text: {error}") from None
        data, self.ready = self.ready[:size], self.ready[size:]
        return data


def _unpacked(raw: IO[bytes]) -> IO[bytes]:
    """Standard input or a pipe, decompressed if its first bytes say so."""
    start, stream = _ahead(raw, 6)
    if start.startswith(GZIP):
        return cast(IO[bytes], gzip.GzipFile(fileobj=stream))
    if start.startswith(XZ):
        return lzma.LZMAFile(stream)
    if start.startswith(ZSTANDARD):
        raise BertsmithError(".zst from a pipe cannot be read: decompress it with zstd -dc")
    return stream


def _ahead(stream: IO[bytes], count: int) -> tuple[bytes, IO[bytes]]:
    """The first bytes of a stream (a pipe may give them one by one), and a stream with all."""
    first = stream.read(count)
    return first, _buffered(_Prefixed(first, stream))


class _Prefixed(ByteSource):
    """Some bytes that were read already, and then the rest of a stream."""

    def __init__(self, first: bytes, rest: IO[bytes]) -> None:
        self.first, self.rest = first, rest

    def take(self, size: int) -> bytes:
        data, self.first = self.first[:size], self.first[size:]
        return data or self.rest.read(size)


def is_regular(path: Path) -> bool:
    """Can a file be read from any place (and is it not a pipe, nor compressed)?"""
    return path.suffix not in PACKED and path.exists() and stat.S_ISREG(path.stat().st_mode)
