"""File input and output: atomic writes, locks, checksums, compression, one-line errors."""

import errno
import gzip
import hashlib
import io
import json
import lzma
import math
import os
import re
import stat
import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryFile
from typing import IO, Any, Literal, overload

from filelock import FileLock, Timeout

from bertsmith.errors import BertsmithError

ESCAPED = "backslashreplace"  # of half characters, as in file names that are not UTF-8
HALVES = re.compile("[\ud800-\udfff]")
LONGEST = 200  # characters of a foreign message that an error of ours repeats
# What network and cluster file systems answer to locks, or to flushing a folder.
UNSUPPORTED = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
PACKED = (".gz", ".xz", ".zst")
BOMB, LARGEST_RATIO = 16 << 20, 300  # bytes of content, and per compressed byte from there on
# What reading raises where a file is missing, damaged or cut short.
UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error)
# Bounds on what is read at once from files that others wrote: a line (or cell) of text, and a
# whole document after decompression.
LONGEST_LINE = 16 << 20
LARGEST_DOCUMENT = 1 << 30
WRITER_SECONDS = 3.0  # that a pipe may be without a writer
O_NONBLOCK, O_BINARY = getattr(os, "O_NONBLOCK", 0), getattr(os, "O_BINARY", 0)


def cause(error: BaseException) -> str:
    """Say on one line why something failed; for an OSError without its number and path."""
    return getattr(error, "strerror", None) or one_line(error) or type(error).__name__


def one_line(text: object) -> str:
    """Put a text on one line of readable length."""
    line = " ".join(str(text).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Turn a failure of the file system into one line that names the file."""
    try:
        yield
    except OSError as error:
        raise BertsmithError(f"{path}: cannot be written ({cause(error)})") from error


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turn what a missing, damaged or cut file raises into one line that names it."""
    try:
        yield
    except UNREADABLE as error:
        raise BertsmithError(f"{path}: cannot be read ({cause(error)})") from error


@contextmanager
def parsing(path: str | Path, kind: str, longest: int = LONGEST) -> Iterator[None]:
    """Turn whatever a library raises for a file that is not of its kind into one line."""
    try:
        yield
    except BertsmithError:
        raise
    except Exception as error:
        why = one_line(error)[:longest]
        raise BertsmithError(f"{path}: not {kind} that can be read ({why})") from error


def import_package(name: str, purpose: str, install: str = "") -> Any:
    """Import an optional package; without it, an error that says how to install it."""
    try:
        return import_module(name)
    except ImportError:
        raise BertsmithError(f"{purpose}: pip install {install or name}") from None


@overload
def atomic(path: str | Path, mode: Literal["wb"] = "wb") -> AbstractContextManager[IO[bytes]]: ...
@overload
def atomic(path: str | Path, mode: Literal["w"]) -> AbstractContextManager[IO[str]]: ...
@contextmanager
def atomic(path: str | Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a stream whose content replaces a file at the end, or not at all after an error.

    Text is UTF-8 with line ends as they are written. What is no regular file, such as
    /dev/stdout, cannot be replaced and is written directly.
    """
    path = Path(path)
    text = {} if "b" in mode else {"encoding": "utf-8", "newline": "", "errors": ESCAPED}
    with writing(path):
        if path.exists() and not path.is_file():
            with path.open(mode, **text) as stream:  # type: ignore[call-overload]
                yield stream
            return
        target = Path(os.path.realpath(path))  # of a link, the file that it leads to is replaced
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        # A hidden name in the same folder that no other writer has.
        part = target.with_name(f".{target.name[:40]}-{os.urandom(6).hex()}.part")
        try:
            with part.open(mode.replace("w", "x"), **text) as stream:  # type: ignore[call-overload]
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            with suppress(OSError):  # a new file, or a file system without permissions
                part.chmod(target.stat().st_mode)
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def check_writable(path: str | Path, folder: bool = False) -> None:
    """Raise if a file or folder cannot be written, before the work whose result it is to hold.

    The folder of a file must exist; for a folder, those above it need not. Nothing is left behind.
    """
    with writing(path):
        place = Path(os.path.realpath(path))
        home = place.parent
        with suppress(FileNotFoundError, NotADirectoryError):
            mode = place.stat().st_mode  # raises for names that are too long
            if stat.S_ISDIR(mode) and not folder:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if stat.S_ISDIR(mode):
                home = place if place.is_mount() else home
            elif not os.access(place, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            elif not stat.S_ISREG(mode):
                return  # a device or a pipe is written directly
        while folder and not home.exists():
            home = home.parent
        if folder and not home.is_dir():
            raise NotADirectoryError(0, f"{home} is not a folder")
        with TemporaryFile(dir=home) as probe:
            probe.write(bytes(4096))
            probe.flush()


def sweep(folder: str | Path) -> None:
    """Remove what killed writers left in a folder; only for who holds its lock."""
    for length in (8, 12):
        for part in Path(folder).glob(f".*-{'[0-9a-z_]' * length}.part"):
            rmtree(part, ignore_errors=True) if part.is_dir() else part.unlink(missing_ok=True)


def make_folder(path: str | Path) -> None:
    """Make a folder, and those above it, where there is none."""
    with writing(path):
        Path(path).mkdir(parents=True, exist_ok=True)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file that is on the disk before it has its name."""
    with atomic(path) as stream:
        stream.write(content)


def write_text(path: str | Path, content: str) -> None:
    """Write a UTF-8 file that is on the disk before it has its name."""
    write_bytes(path, content.encode(errors=ESCAPED))


def write_json(path: str | Path, content: object) -> None:
    """Write a JSON file that people can read too; NaN and infinity are refused."""
    try:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise BertsmithError(f"{path}: cannot be written ({cause(error)})") from error
    write_text(path, text + "\n")


def finite(content: Any) -> Any:
    """The same content with None in place of numbers that are not finite."""
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {key: finite(value) for key, value in content.items()}
    return [finite(value) for value in content] if isinstance(content, list | tuple) else content


def sync(path: str | Path) -> None:
    """Wait until a file or folder is on the disk."""
    if sys.platform == "win32":  # where only a handle that may write can be flushed
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
    finally:
        os.close(handle)


def digest(path: str | Path) -> str:
    """The SHA-256 sum of a file."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Keep other processes out of a folder, which is made; the lock ends with this process."""
    make_folder(folder)
    with locked_file(Path(folder) / ".lock", folder):
        yield


@contextmanager
def locked_file(path: Path, folder: str | Path) -> Iterator[None]:
    """Hold the lock file of a folder; a second process is refused."""
    lock = FileLock(path, timeout=0)
    with writing(folder):
        try:
            lock.acquire()
        except Timeout:
            raise BertsmithError(f"{folder}: another bertsmith process is working in it") from None
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)  # whoever has just opened it notices
        lock.release()


@contextmanager
def open_bytes(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a file: the stream of its content, and the file itself, which tells how far one is."""
    with open_regular(path) as file, _content(path, file) as stream:
        yield stream, file


def open_regular(path: str | Path) -> IO[bytes]:
    """Open a file to read it, or a pipe that something writes to; devices are refused."""
    handle = os.open(path, os.O_RDONLY | O_NONBLOCK | O_BINARY)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if stat.S_ISFIFO(mode):
            return io.BufferedReader(_Pipe(handle, _first_byte(handle)))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _first_byte(handle: int) -> bytes:
    """Wait until something writes to a pipe, at most for a while: the first byte, if it is there.

    Without a writer a pipe looks as if it had ended; with one that has not written, it blocks.
    """
    end = time.monotonic() + WRITER_SECONDS
    first = b""
    with suppress(BlockingIOError):
        while not (first := os.read(handle, 1)):
            if time.monotonic() > end:
                raise OSError(errno.EPIPE, "a pipe that nothing writes to")
            time.sleep(0.01)
    os.set_blocking(handle, True)
    return first


class ByteSource(io.RawIOBase):
    """A stream of the bytes that `take` returns."""

    def readable(self) -> bool:
        """It can be read."""
        return True

    def take(self, size: int) -> bytes:
        """Return at most so many bytes; none at the end."""
        raise NotImplementedError

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, or a part of it."""
        data = self.take(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Pipe(ByteSource):
    """A named pipe, or that of a shell's <(...)."""

    def __init__(self, handle: int, first: bytes) -> None:
        self.handle, self.first, self.count = handle, first, 0

    def take(self, size: int) -> bytes:
        data, self.first = self.first or os.read(self.handle, size), b""
        self.count += len(data)
        return data

    def tell(self) -> int:
        return self.count

    def close(self) -> None:
        if not self.closed:
            os.close(self.handle)
        super().close()


def _content(path: Path, file: IO[bytes]) -> IO[bytes]:
    if path.suffix not in PACKED:
        return file
    content: Any
    if path.suffix == ".gz":
        content = gzip.GzipFile(fileobj=file)
    elif path.suffix == ".xz":
        content = lzma.LZMAFile(file)  # noqa: SIM115 - closed by its reader
    else:
        content = _Frames(path, file)
    return io.BufferedReader(_Bounded(content, file), 1 << 17)


class _Bounded(ByteSource):
    """Decompressed content, unless it is a compressed bomb: text never shrinks that much."""

    def __init__(self, content: IO[bytes], file: IO[bytes]) -> None:
        self.content, self.file, self.count = content, file, 0

    def take(self, size: int) -> bytes:
        data = self.content.read(size)
        self.count += len(data)
        if self.count > BOMB and self.count > LARGEST_RATIO * self.file.tell():
            raise OSError(f"it decompresses to more than {LARGEST_RATIO} times its size")
        return data

    def close(self) -> None:
        if not self.closed:
            self.content.close()
        super().close()


def read_whole(path: str | Path, limit: int = LARGEST_DOCUMENT) -> bytes:
    """All of a file, decompressed, if it holds at most `limit` bytes."""
    with reading(path), open_bytes(Path(path)) as (stream, _):
        parts, size = [], 0
        while part := stream.read(min(1 << 20, limit + 1 - size)):
            parts.append(part)
            size += len(part)
            if size > limit:
                raise BertsmithError(
                    f"{path}: holds more than {limit >> 20:,} MiB, too much to read at once"
                )
    return b"".join(parts)


def read_lines(path: str | Path, longest: int = LONGEST_LINE) -> Iterator[bytes]:
    """Every line of a file with its line feed, decompressed, in bounded memory."""
    with reading(path), open_bytes(Path(path)) as (stream, _):
        yield from bounded_lines(stream, str(path), longest)


def bounded_lines(stream: IO[bytes], name: str, longest: int = LONGEST_LINE) -> Iterator[bytes]:
    """Every line of a stream, none longer than `longest` bytes; `name` is for the error."""
    number = 0
    while line := stream.readline(longest + 1):
        number += 1
        if len(line) > longest:
            fault = f"longer than {longest >> 20:,} MiB; is it text with a record on each line?"
            raise BertsmithError(f"{name}, line {number}: {fault}")
        yield line


def inner(path: Path) -> Path:
    """A file's name without what only says how it is compressed."""
    return path.with_suffix("") if path.suffix in PACKED else path


def suffix_of(path: Path) -> str:
    """The ending that says what a file is, without that of the compression."""
    return inner(path).suffix.lower()


class _Frames(ByteSource):
    """The content of Zstandard frames; the library's own reader accepts truncated files."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.file = file
        self.library = import_package("zstandard", f"{path}: .zst files need zstandard")
        self.frame: Any = None  # the one that is being read
        self.ready = b""

    def take(self, size: int) -> bytes:
        while not self.ready:
            data = self.file.read(1 << 11)  # a block of 4 bytes may hold 128 KiB
            if not data:
                if self.frame is not None:
                    raise EOFError("it ends in the middle of a Zstandard frame")
                return b""
            self._feed(data)
        data, self.ready = self.ready[:size], self.ready[size:]
        return data

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


def whole_characters(text: str) -> str:
    """The same text with a replacement character for each half of a surrogate pair."""
    return text if text.isascii() else HALVES.sub("\N{REPLACEMENT CHARACTER}", text)


def not_utf8(path: str | Path, line: int, byte: int) -> BertsmithError:
    """The error for a file of plain text in another encoding, and how to convert it."""
    encoding = "UTF-16" if line == 1 and byte in (0xFE, 0xFF) else "CP1252"
    return BertsmithError(
        f"{path}, line {line}: the byte 0x{byte:02x} is not UTF-8 text; convert the file from its "
        f"encoding, as with iconv -f {encoding} -t UTF-8"
    )
