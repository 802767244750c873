"""The store: a folder with a SQLite database and segments of vectors, changed by transactions."""

from __future__ import annotations

import hashlib
import json
import marshal
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bertsmith.errors import BertsmithError
from bertsmith.files import one_line, sweep, sync, write_json, writing
from bertsmith.numbers import parse_whole
from bertsmith.search.database import (
    DATABASE,
    FORMAT,
    POINTER,
    SUM,
    connect,
    connect_reader,
    current,
    damage_named,
    damaged,
    identity,
    pointed,
    remove_folder,
)
from bertsmith.search.keywords import TOKENIZER, distinct_words, spaced
from bertsmith.search.segments import Segment

MOST_SEEN = 500_000  # words in memory
QUOTED = TOKENIZER.replace("'", "''")
SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE files (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, size INTEGER NOT NULL,
    modified INTEGER NOT NULL, sha256 TEXT NOT NULL
);
CREATE TABLE passages (
    id INTEGER PRIMARY KEY, file INTEGER NOT NULL, document TEXT NOT NULL, title TEXT NOT NULL,
    heading TEXT NOT NULL, line INTEGER NOT NULL, unit TEXT NOT NULL, first INTEGER NOT NULL,
    last INTEGER NOT NULL, text TEXT NOT NULL, key BLOB NOT NULL, sum INTEGER NOT NULL
);
CREATE INDEX passages_file ON passages (file);
CREATE INDEX passages_key ON passages (key);
CREATE TABLE segments (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, sha256 TEXT NOT NULL,
    rows INTEGER NOT NULL, dimension INTEGER NOT NULL, dtype TEXT NOT NULL
);
CREATE TABLE vectors (passage INTEGER PRIMARY KEY, segment INTEGER NOT NULL, row INTEGER NOT NULL);
CREATE TABLE vocabulary (word TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE VIRTUAL TABLE words USING fts5(title, text, content='', tokenize='{QUOTED}');
CREATE VIRTUAL TABLE frequency USING fts5vocab(words, row);
"""
# Vectors of passages that are not stored yet: those of a large file that is being read.
PENDING = "CREATE TABLE IF NOT EXISTS pending"
PENDING += " (key BLOB PRIMARY KEY, segment INTEGER NOT NULL, row INTEGER NOT NULL)"
COLUMNS = "document, title, heading, line, unit, first, last, text"
SUMMED: tuple[str, ...] = ("files", "passages", "segments", "vectors", "vocabulary")
SUMMED += ("words_data", "words_idx", "words_docsize", "words_config")  # of FTS5
SUMMED += ("(SELECT name, sql FROM sqlite_master WHERE name IN ('words', 'frequency'))",)
UNCOUNTED = ("sum", "checked")  # settings that may change without a new generation


@dataclass(frozen=True)
class StoredPassage:
    """A passage as stored in the database, with its file."""

    id: int
    file: str
    kind: str
    modified: int  # nanoseconds since 1970
    document: str
    title: str
    heading: str
    line: int
    unit: str
    start: int
    end: int
    text: str


class StoredFile(NamedTuple):
    """A file of the index, or a document that was added from Python."""

    id: int
    path: str
    kind: str
    size: int
    modified: int
    sha256: str


def checksum(values: Sequence[Any]) -> int:
    """Return a CRC of a row's values, to detect damage."""
    return zlib.crc32("\0".join(map(str, values)).encode("utf-8", "replace"))


class Store:
    """The database and the folder of its segments."""

    def __init__(self, root: Path, folder: Path, database: sqlite3.Connection) -> None:
        self.root, self.folder, self.database = root, folder, database
        self._seen: set[str] = set()  # words that are in the vocabulary
        self._identity = identity(folder / DATABASE)
        self._changes = 0  # rows that this connection had changed when the transaction began

    # -------------------------------------------------------------- opening

    @classmethod
    def create(cls, root: Path, meta: dict[str, Any]) -> Store:
        """Create an empty store in a new folder of `root`; `switch` makes it the current one."""
        with writing(root):
            folder = root / os.urandom(4).hex()
            folder.mkdir(parents=True)
            sync(root)
        store = cls(root, folder, connect(folder / DATABASE))
        with damage_named(folder / DATABASE):
            store.database.execute("PRAGMA journal_mode = WAL")
            store.database.executescript(f"BEGIN; {SCHEMA} {PENDING}; COMMIT;")
            with store.transaction():
                store.set_meta(format=FORMAT, generation=0, **meta)
        return store

    @classmethod
    def open(cls, root: Path, write: bool = False) -> Store:
        """Open the current store of a folder; a writer verifies it first.

        Readers verify what they read; checking the whole would take as long as the index is large.
        """
        folder = current(root)
        path = folder / DATABASE
        if not path.is_file():
            if current(root) != folder:  # replaced by another process just now
                return cls.open(root, write)
            raise damaged(path, "missing")
        database = connect(path) if write else connect_reader(path)
        store = cls(root, folder, database)
        try:
            with damage_named(path):
                written = parse_whole(store.meta().get("format"))
                if written != FORMAT:
                    raise BertsmithError(
                        f"{root}: its format is {written}, this version of bertsmith reads"
                        f" {FORMAT}: remove {root} and build it again"
                    )
                if write:
                    store.verify()
                    database.execute(PENDING)
        except BaseException:
            store.close()
            raise
        return store

    def switch(self) -> None:
        """Make this store the current one, and remove the previous one."""
        former = self.root / str(pointed(self.root)) if (self.root / POINTER).exists() else None
        write_json(self.root / POINTER, {"format": FORMAT, "current": self.folder.name})
        sync(self.root)
        if former is not None and former != self.folder:
            remove_folder(former)

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    # -------------------------------------------------------------- integrity

    def outdated(self) -> bool:
        """Whether the file of the database was replaced, or changed where SQLite cannot notice."""
        return identity(self.folder / DATABASE) != self._identity

    def seal(self) -> None:
        """Record the checksum of this state, and move SQLite's log into the database."""
        with damage_named(self.folder / DATABASE):
            generation = self.generation()
            if self.meta().get("sum", {}).get("generation") != generation:
                self.set_meta(sum={"generation": generation, "value": self._sum()})
            self.database.execute("PRAGMA optimize")
            self.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (self.folder / SUM).unlink(missing_ok=True)  # of an earlier version

    def verify(self) -> None:
        """Verify the structure of the database, and the checksum of its rows if there is one."""
        path = self.folder / DATABASE
        with damage_named(path), self.snapshot():
            row = self.database.execute("PRAGMA integrity_check(1)").fetchone()
            if row != ("ok",):
                raise damaged(path, one_line(row[0]))
            recorded = self.meta().get("sum", {})
            if recorded.get("generation") == self.generation() and recorded["value"] != self._sum():
                raise damaged(path, "its checksum differs")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read a single state of the database, unaffected by commits in the meantime."""
        with damage_named(self.folder / DATABASE):
            if self.database.in_transaction:
                yield
                return
            self.database.execute("BEGIN")
            try:
                yield
            finally:
                self.rollback()

    def _sum(self) -> str:
        """Return a checksum of all rows, read through SQLite (see `identity`)."""
        total = hashlib.blake2b(digest_size=16)
        for table in ("meta", *SUMMED):
            for row in self.database.execute(f"SELECT * FROM {table}"):
                if table != "meta" or row[0] not in UNCOUNTED:
                    total.update(marshal.dumps(row, 2))
        return total.hexdigest()

    # -------------------------------------------------------------- meta

    def meta(self) -> dict[str, Any]:
        """The stored settings: model, dimension, chunking, roots, ..."""
        rows = self.database.execute("SELECT key, value FROM meta")
        return {key: json.loads(value) for key, value in rows}

    def set_meta(self, **values: Any) -> None:
        """Change some settings, within a transaction."""
        rows = [(key, json.dumps(value)) for key, value in values.items()]
        self.database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)

    def generation(self) -> int:
        """The number of changes so far."""
        row = self.database.execute("SELECT value FROM meta WHERE key = 'generation'").fetchone()
        return int(row[0]) if row else 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run changes as one atomic transaction."""
        with damage_named(self.folder / DATABASE):
            self.begin()
            try:
                yield
                self.commit()
            except BaseException:
                self.rollback()
                raise

    def begin(self) -> None:
        """Begin a transaction."""
        self.database.execute("BEGIN IMMEDIATE")
        self._changes = self.database.total_changes

    def commit(self) -> None:
        """Commit the transaction; if it changed something, increase the generation by one."""
        if self.database.total_changes > self._changes:
            self.set_meta(generation=self.generation() + 1)
        self.database.execute("COMMIT")

    def rollback(self) -> None:
        """Roll back uncommitted changes, if any."""
        with suppress(sqlite3.Error):
            self.database.execute("ROLLBACK")

    # -------------------------------------------------------------- writing

    def add_file(self, path: str, kind: str, size: int, modified: int, sha256: str) -> int:
        """Add a file without passages; its path must not exist yet."""
        row = self.database.execute(
            "INSERT INTO files (path, kind, size, modified, sha256) VALUES (?, ?, ?, ?, ?)",
            (path, kind, size, modified, sha256),
        )
        assert row.lastrowid is not None
        return row.lastrowid

    def remove_file(self, file: int) -> None:
        """Remove a file with its passages."""
        rows = self.database.execute(
            "SELECT id, title, heading, text FROM passages WHERE file = ?", (file,)
        ).fetchall()
        for number, title, heading, text in rows:
            self.database.execute(
                "INSERT INTO words (words, rowid, title, text) VALUES ('delete', ?, ?, ?)",
                (number, *_indexed(title, heading, text)),
            )
        self.database.execute(
            "DELETE FROM vectors WHERE passage IN (SELECT id FROM passages WHERE file = ?)", (file,)
        )
        self.database.execute("DELETE FROM passages WHERE file = ?", (file,))
        self.database.execute("DELETE FROM files WHERE id = ?", (file,))

    def add_passage(self, file: int, values: Sequence[Any], key: bytes) -> int:
        """Add a passage: document, title, heading, line, unit, start, end, text."""
        _, title, heading, *_, text = values
        row = self.database.execute(
            f"INSERT INTO passages (file, {COLUMNS}, key, sum) VALUES (?{', ?' * 10})",
            (file, *values, key, checksum(values)),
        )
        number = row.lastrowid
        assert number is not None
        self.database.execute(
            "INSERT INTO words (rowid, title, text) VALUES (?, ?, ?)",
            (number, *_indexed(title, heading, text)),
        )
        new = distinct_words(f"{title} {heading} {text}") - self._seen
        self.database.executemany(
            "INSERT OR IGNORE INTO vocabulary VALUES (?)", [(word,) for word in new]
        )
        if len(self._seen) > MOST_SEEN:
            self._seen.clear()
        self._seen |= new
        return number

    def rolled_back(self) -> None:
        """Forget which words are known, since some were added by the changes rolled back."""
        self._seen.clear()

    def add_segment(self, segment: Segment) -> int:
        """Add a segment whose file is on the disk; equal content is stored once."""
        _, *values = astuple(segment)
        self.database.execute(
            "INSERT OR IGNORE INTO segments (name, sha256, rows, dimension, dtype)"
            " VALUES (?, ?, ?, ?, ?)",
            values,
        )
        row = self.database.execute("SELECT id FROM segments WHERE name = ?", (segment.name,))
        return int(row.fetchone()[0])

    def remove_segment(self, segment: int) -> None:
        """Remove a segment and what is recorded of its vectors; its file is swept later."""
        for table, column in (("vectors", "segment"), ("pending", "segment"), ("segments", "id")):
            self.database.execute(f"DELETE FROM {table} WHERE {column} = ?", (segment,))

    def set_vectors(self, rows: Iterable[tuple[int, int, int, bytes]]) -> None:
        """Record vectors of passages that are still stored: (segment, row, passage, its key)."""
        self.database.executemany(
            "INSERT OR REPLACE INTO vectors (passage, segment, row)"
            " SELECT id, ?, ? FROM passages WHERE id = ? AND key = ?",
            rows,
        )

    def set_pending(self, rows: Iterable[tuple[bytes, int, int]]) -> None:
        """Record vectors of passages that will be stored later: (key, segment, row)."""
        self.database.executemany("INSERT OR REPLACE INTO pending VALUES (?, ?, ?)", rows)

    def vector_of(self, key: bytes) -> tuple[int, int] | None:
        """Return the segment and row of a passage with the same content, if any."""
        row = self.database.execute(
            "SELECT segment, row FROM vectors WHERE passage IN"
            " (SELECT id FROM passages WHERE key = ? LIMIT 4)"
            " UNION ALL SELECT segment, row FROM pending WHERE key = ? LIMIT 1",
            (key, key),
        ).fetchone()
        return row and (int(row[0]), int(row[1]))

    # -------------------------------------------------------------- reading

    def segments(self) -> list[Segment]:
        """All segments."""
        rows = self.database.execute(
            "SELECT id, name, sha256, rows, dimension, dtype FROM segments ORDER BY id"
        )
        return [Segment(*row) for row in rows]

    def files(self, condition: str = "1", *values: object) -> list[StoredFile]:
        """The files that match a condition in SQL."""
        sql = f"SELECT id, path, kind, size, modified, sha256 FROM files WHERE {condition}"
        return [StoredFile(*row) for row in self.database.execute(sql, values)]

    def file(self, path: str) -> StoredFile | None:
        """The file of this path, if there is one."""
        return next(iter(self.files("path = ?", path)), None)

    def count(self, table: str = "passages") -> int:
        """The number of passages, files or vectors."""
        assert table in ("passages", "files", "vectors", "segments")
        return int(self.database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def neighbours(self, passage: int) -> list[int]:
        """The ids of all passages of a passage's file or record, in order."""
        rows = self.database.execute(
            "SELECT n.id FROM passages n JOIN passages p ON n.file = p.file"
            " AND n.document = p.document WHERE p.id = ? ORDER BY n.first, n.id",
            (passage,),
        )
        return [number for (number,) in rows]

    def passages(self, ids: Sequence[int]) -> list[StoredPassage]:
        """Return passages by id, in this order; a damaged one is an error that names the index."""
        listed = ", ".join(str(int(number)) for number in ids)
        rows = self.database.execute(
            f"SELECT p.id, p.sum, f.path, f.kind, f.modified, {COLUMNS}"
            f" FROM passages p JOIN files f ON f.id = p.file WHERE p.id IN ({listed})"
        )
        by_id: dict[int, StoredPassage] = {}
        for number, total, path, kind, modified, *values in rows:
            if checksum(values) != total:
                raise damaged(self.folder / DATABASE, f"passage {number} is not what was written")
            by_id[number] = StoredPassage(number, path, kind, modified, *values)
        missing = [number for number in ids if number not in by_id]
        if missing:
            raise damaged(self.folder / DATABASE, f"passage {missing[0]} is missing")
        return [by_id[number] for number in ids]


def _indexed(title: str, heading: str, text: str) -> tuple[str, str]:
    """Return the two columns of the keyword index; a heading equal to the title counts once."""
    above = f"{title} {heading}" if heading and heading != title else title
    return spaced(above), spaced(text)


def sweep_segments(store: Store) -> None:
    """Remove segments that were never committed, or that were merged."""
    known = {segment.name for segment in store.segments()}
    sweep(store.folder)
    for path in store.folder.glob("*.npy"):
        if path.name not in known:
            with suppress(OSError):
                path.unlink()
