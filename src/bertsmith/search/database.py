"""The SQLite files of an index: location, connections, checksums and damage."""

import json
import os
import re
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import cause, one_line
from bertsmith.foreign import read_json

POINTER = "index.json"  # names the folder that holds the current database and its segments
DATABASE, SUM = "index.db", "index.sum"
FORMAT = 1
# Of all connections; the timeout is for SQLite's short locks.
CONNECTION: Any = {"timeout": 30.0, "isolation_level": None, "check_same_thread": False}


def current(root: Path) -> Path:
    """The folder that holds the current database of an index."""
    if is_index(root):
        return root / pointed(root)
    if root.exists() and not root.is_dir():
        raise BertsmithError(f"{root}: is a file, and an index is a folder")
    if root.is_dir() and not is_leftover(root):
        build = _building(root, "INDEX")
        raise BertsmithError(f"{root}: is no index; `{build}` builds one of its files")
    what = "is no index" if root.exists() else "no such index"
    raise BertsmithError(f"{root}: {what}; `{_building('FOLDER', root)}` builds one")


def pointed(root: Path) -> str:
    """The name of the current folder."""
    name = read_json(root / POINTER, limit=1 << 16).get("current")
    if not isinstance(name, str) or not name.isalnum():
        raise BertsmithError(f"{root / POINTER}: damaged; {_way_out(root)}")
    return name


def is_leftover(root: Path) -> bool:
    """Whether a folder holds nothing, or only what a killed run or a lost pointer leaves."""
    return all(is_state(entry) or entry.name.startswith(".") for entry in root.iterdir())


def is_state(entry: Path) -> bool:
    """Whether a folder inside an index holds a state of it: a database and its segments."""
    if not re.fullmatch("[0-9a-f]{8}", entry.name) or not entry.is_dir():
        return False
    known = (".npy", ".part", ".faiss", DATABASE, SUM, f"{DATABASE}-wal", f"{DATABASE}-shm")
    return all(file.name.endswith(known) for file in entry.iterdir())


def is_index(folder: Path) -> bool:
    """Whether a folder is an index, which must not index itself."""
    return (folder / POINTER).is_file()


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection for writing."""
    with damage_named(path):
        database = sqlite3.connect(path, **CONNECTION)
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA cache_size = -65536")
        return database


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a read-only connection, also on read-only media."""
    address = f"file:{quote(str(path.resolve()))}?mode=ro"
    if is_frozen(path):
        address += "&immutable=1"
    with damage_named(path):
        return sqlite3.connect(address, uri=True, **CONNECTION)


def is_frozen(path: Path) -> bool:
    """Whether SQLite cannot lock a database: then it is read as a file that never changes."""
    return not os.access(path.parent, os.W_OK) and not path.with_name(f"{DATABASE}-shm").exists()


def identity(path: Path) -> tuple[int, ...]:
    """Return numbers that change when an open connection no longer shows the database.

    They come from the file system: a process that opens and closes the file itself loses the locks
    that SQLite holds on it (POSIX), and a writer may then remove the log that readers depend on.
    """
    try:
        state = path.stat()
    except OSError:
        return ()
    changing = (state.st_size, state.st_mtime_ns) if is_frozen(path) else ()
    return state.st_dev, state.st_ino, *changing


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn SQLite's exceptions into a one-line error that names the database."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text:
            raise BertsmithError(f"{path}: another process is writing to it; try again") from error
        if "full" in text or "readonly" in text or "unable to open" in text:
            raise BertsmithError(f"{path}: cannot be used ({cause(error)})") from error
        raise damaged(path, one_line(error)) from error
    except (sqlite3.Error, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise damaged(path, one_line(error)) from error


class DamagedIndexError(BertsmithError):
    """A file of an index is missing or damaged."""


def damaged(path: Path, why: str) -> BertsmithError:
    """Return the error for a damaged database."""
    return DamagedIndexError(f"{path}: damaged ({why}); {_way_out(path.parent.parent)}")


def _way_out(root: Path) -> str:
    return f"remove {root} and build it again: {_building('FOLDER', root)}"


def _building(folder: Path | str, index: Path | str) -> str:
    """How to build an index of a folder, in Python or on the command line."""
    words = shlex.join(["bertsmith", "index", str(folder), "--out", str(index)])
    return setting_name(f"Index.create({str(index)!r}).update([{str(folder)!r}])", option=words)
