"""The files of folders to index; changes by size, time and SHA-256 sum."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertsmith.errors import BertsmithError
from bertsmith.files import cause
from bertsmith.ledger import Ledger
from bertsmith.search.database import is_index

SKIPPED = {"node_modules", "__pycache__", "site-packages"}


@dataclass(frozen=True)
class SourceFile:
    """A file on the disk."""

    path: Path
    key: str  # its path as text, also where its name is not UTF-8
    size: int
    modified: int  # nanoseconds since 1970


def resolved_roots(folders: Sequence[str | Path]) -> list[Path]:
    """Return the full paths of folders and files to index; a missing one is an error."""
    roots = []
    for folder in folders:
        path = Path(folder).expanduser()
        try:
            exists = path.exists()
        except OSError as error:  # a name that is too long
            raise BertsmithError(f"{folder}: cannot be read ({cause(error)})") from None
        if not exists or "\0" in str(folder):
            raise BertsmithError(f"{folder}: no such file or folder")
        roots.append(path.resolve())
    return list(dict.fromkeys(roots))


def text_key(path: Path) -> str:
    """Return a path as text that SQLite can store."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def under(key: str, root: Path) -> bool:
    """Whether a file is a root, or in it."""
    base = text_key(root)
    return key == base or key.startswith(base.rstrip(os.sep) + os.sep)


def scan(roots: Sequence[Path], ledger: Ledger) -> Iterator[SourceFile]:
    """Yield every regular file of the roots once, in order; hidden files are skipped."""
    seen: set[str] = set()
    for root in roots:
        for path in [root] if root.is_file() else _walk(root, ledger):
            try:
                state = path.stat()
            except OSError:
                ledger.note("links that lead nowhere, left out")
                continue
            if not path.is_file():
                ledger.note("devices and pipes, left out")
                continue
            key = text_key(path)
            if key not in seen:
                seen.add(key)
                yield SourceFile(path, key, state.st_size, state.st_mtime_ns)


def _walk(root: Path, ledger: Ledger) -> Iterator[Path]:
    def unreadable(error: OSError) -> None:
        ledger.note(f"folders that cannot be read: {error.filename}")

    for folder, folders, names in os.walk(root, onerror=unreadable):
        here = Path(folder)
        if is_index(here):
            folders.clear()
            continue
        hidden = [name for name in folders if name.startswith(".") or name in SKIPPED]
        folders[:] = sorted(name for name in folders if name not in hidden)
        shown = sorted(name for name in names if not name.startswith("."))
        ledger.note("hidden files and folders, left out", len(hidden) + len(names) - len(shown))
        yield from (here / name for name in shown)
