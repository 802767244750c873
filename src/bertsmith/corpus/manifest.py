"""The manifest of a corpus, with a SHA-256 sum of every file, and checks of files against it."""

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Queue
from threading import Lock, Thread
from typing import Any, Self

from bertsmith.errors import BertsmithError
from bertsmith.files import cause, digest, read_whole, reading, write_json
from bertsmith.foreign import parse_table
from bertsmith.store import fingerprint

NAME = "manifest.json"
FORMAT = "bertsmith-corpus-1"
REMEDY = "restore the file, or prepare the corpus again"


def is_finished(directory: Path) -> bool:
    """Return whether a folder holds a prepared corpus."""
    return (directory / NAME).exists()


@dataclass(frozen=True)
class FileSum:
    """The size and checksum of a file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class SplitSize:
    """The size of a split: documents, sentences, tokens."""

    tokens: int
    sentences: int
    documents: int
    shards: int


@dataclass(frozen=True)
class Manifest:
    """The description of a prepared corpus: settings, splits, files and their SHA-256 sums."""

    settings: dict[str, Any]
    dtype: str
    splits: dict[str, SplitSize]
    files: dict[str, FileSum]  # by their path in the folder
    ledger: dict[str, int]
    additions: list[list[dict[str, Any]]] = field(default_factory=list)  # input files

    def write(self, directory: Path) -> None:
        """Write the manifest atomically; a corpus without one is unfinished."""
        write_json(directory / NAME, {**self._content(), "sha256": self.fingerprint()})

    def _content(self) -> dict[str, Any]:
        content = {"format": FORMAT, **asdict(self)}
        if not self.additions:  # so that older manifests keep their SHA-256 sum
            del content["additions"]
        return content

    def current(self) -> dict[str, str]:
        """The files by their names without endings: those of additions are tokens-00003.1.npy."""
        return {name.partition(".")[0]: name for name in self.files}

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read a manifest."""
        path = directory / NAME
        with reading(path):  # such as a name that is too long
            if not is_finished(directory):
                raise BertsmithError(_absent(directory))
        content = parse_table(read_whole(path))
        if content is None:
            raise BertsmithError(f"{path} is damaged: it is not JSON")
        try:
            if content["format"] != FORMAT:
                raise BertsmithError(f"{path}: written by another version of bertsmith")
            if content.pop("sha256") != fingerprint(content):
                raise BertsmithError(f"{path} is damaged: its SHA-256 sum does not match")
            del content["format"]
            content["splits"] = {name: SplitSize(**v) for name, v in content["splits"].items()}
            content["files"] = {name: FileSum(**v) for name, v in content["files"].items()}
            return cls(**content)
        except (TypeError, AttributeError, LookupError):
            raise BertsmithError(f"{path} is damaged: fields are missing or invalid") from None

    def fingerprint(self) -> str:
        """The SHA-256 sum of the manifest, which identifies the corpus."""
        return fingerprint(self._content())

    def damaged(self, directory: Path, *, sums: bool) -> list[str]:
        """Return a line for each damaged file; with `sums=False` only sizes are compared."""
        faults = (damage_of(directory / n, stored, sums=sums) for n, stored in self.files.items())
        return list(filter(None, faults))


def _absent(directory: Path) -> str:
    if not directory.is_dir():
        return f"{directory}: no such folder"
    if (directory / "work").is_dir():
        return f"{directory}: its preparation was interrupted; run `bertsmith prepare` again"
    return f"{directory}: not a prepared corpus (no {NAME}); make one with `bertsmith prepare`"


def damage_of(path: Path, stored: FileSum, *, sums: bool) -> str | None:
    """Return what is wrong with a file, by its size or by its sum too."""
    try:
        size = path.stat().st_size
        if size != stored.bytes:
            return f"{path} is damaged: it has {size:,} bytes, not {stored.bytes:,}; {REMEDY}"
        if sums and digest(path) != stored.sha256:
            return f"{path} is damaged: its SHA-256 sum is not the manifest's; {REMEDY}"
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        return f"{path} cannot be read ({cause(error)})"
    return None


def measure(directory: Path, paths: list[Path]) -> dict[str, FileSum]:
    """The sizes and sums of files, by their path in the folder."""
    sums = (FileSum(path.stat().st_size, digest(path)) for path in paths)
    names = (path.relative_to(directory).as_posix() for path in paths)
    return dict(zip(names, sums, strict=True))


AT_ONCE = 256 << 20  # bytes of files that are checked before they are used


class FileChecks:
    """Compares the SHA-256 sum of each file once, when it is first used.

    A run reads all shards in its first steps, and checksums of a large corpus take minutes. So only
    the first `AT_ONCE` bytes are checked before they are used; a thread checks further files while
    they are in use, and after damage the next read raises an error. Of the ranks on one machine,
    the first checks. A file that changes later is checked again, before its next use.
    """

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory, self.files = directory, manifest.files
        self.checks = os.environ.get("LOCAL_RANK", "0") == "0"
        self.left, self.lock = AT_ONCE, Lock()
        self.checked: dict[str, tuple[int, int]] = {}  # inode, modification time
        self.queue: Queue[str] = Queue()
        self.thread: Thread | None = None
        self.fault: str | None = None

    def demand(self, name: str) -> None:
        """Raise an error if this file, or one compared since the last call, is damaged."""
        path, stored = self.directory / name, self.files[name]
        with reading(path):
            status = path.stat()
        if status.st_size != stored.bytes:  # reading beyond its end would crash the process
            raise BertsmithError(str(damage_of(path, stored, sums=False)))
        now = (status.st_ino, status.st_mtime_ns)
        with self.lock:
            before, self.checked[name] = self.checked.get(name), now
            if before != now and self.checks:
                if before is not None or stored.bytes <= self.left:
                    self.left -= stored.bytes
                    self._check(name)
                else:
                    self.queue.put(name)
                    if self.thread is None:
                        self.thread = Thread(target=self._check_queue, name="sums", daemon=True)
                        self.thread.start()
        if self.fault:
            raise BertsmithError(self.fault)

    def finish(self) -> None:
        """Wait until every file that was opened is compared; raise an error if one is damaged."""
        self.queue.join()
        if self.fault:
            raise BertsmithError(self.fault)

    def _check_queue(self) -> None:
        while True:
            self._check(self.queue.get())
            self.queue.task_done()

    def _check(self, name: str) -> None:
        self.fault = self.fault or damage_of(self.directory / name, self.files[name], sums=True)
