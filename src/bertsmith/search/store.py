"""The store: a folder with a SQLite database and segments of vectors, changed by transactions."""

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
from shutil import rmtree
from typing import Any, NamedTuple, Self

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
    is_index,
    pointed,
)
from bertsmith.search.formats import ParsedDocument
from bertsmith.search.keywords import TOKENIZER, distinct_words, spaced
from bertsmith.search.passages import Passage, joined_text
from bertsmith.search.segments import Segment

MOST_SEEN = 500_000  # words in memory
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
CREATE VIRTUAL TABLE words USING fts5(title, text, content='', tokenize='{TOKENIZER}');
CREATE VIRTUAL TABLE frequency USING fts5vocab(words, row);
"""
# Vectors of passages that are not stored yet: those of a large file that is being read.
PENDING = """CREATE TABLE IF NOT EXISTS pending (
    key BLOB PRIMARY KEY, segment INTEGER NOT NULL, row INTEGER NOT NULL
)"""
COLUMNS = "document, title, heading, line, unit, first, last, text"
SUMMED = ["meta", "files", "passages", "segments", "vectors", "vocabulary"]
SUMMED += ["words_data", "words_idx", "words_docsize", "words_config"]  # of FTS5
SUMMED += ["(SELECT name, sql FROM sqlite_master WHERE name IN ('words', 'frequency'))"]
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

    @property
    def content(self) -> str:
        """The text that is embedded: title, headings and text."""
        return joined_text(self.title, self.heading, self.text)


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

    @classmethod
    def create(cls, root: Path, meta: dict[str, Any]) -> Self:
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
    def open(cls, root: Path, write: bool = False) -> Self:
        """Open the current store of a folder; a writer verifies it all, readers what they read."""
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
                    known = f"this version of bertsmith reads {FORMAT}"
                    advice = f"remove {root} and build it again"
                    raise BertsmithError(f"{root}: its format is {written}, {known}: {advice}")
                if write:
                    store.verify()
                    database.execute(PENDING)
        except BaseException:
            store.close()
            raise
        return store

    def switch(self) -> None:
        """Make this store the current one, and remove the previous one."""
        former = self.root / pointed(self.root) if is_index(self.root) else self.folder
        write_json(self.root / POINTER, {"format": FORMAT, "current": self.folder.name})
        sync(self.root)
        if former != self.folder:
            rmtree(former, ignore_errors=True)  # files in use elsewhere may stay

    def close(self) -> None:
        """Close the database."""
        self.database.close()

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
        total = hashlib.blake2b(digest_size=16)
        for table in SUMMED:
            for row in self.database.execute(f"SELECT * FROM {table}"):
                if table != "meta" or row[0] not in UNCOUNTED:
                    total.update(marshal.dumps(row, 2))
        return total.hexdigest()

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

    def add_file(self, path: str, kind: str, size: int, modified: int, sha256: str) -> int:
        """Add a file without passages; its path must not exist yet."""
        sql = "INSERT INTO files (path, kind, size, modified, sha256) VALUES (?, ?, ?, ?, ?)"
        return self._insert(sql, (path, kind, size, modified, sha256))

    def _insert(self, sql: str, values: Sequence[Any]) -> int:
        return self.database.execute(sql, values).lastrowid or 0

    def remove_file(self, file: int) -> None:
        """Remove a file with its passages."""
        sql = "SELECT id, title, heading, text FROM passages WHERE file = ?"
        delete = "INSERT INTO words (words, rowid, title, text) VALUES ('delete', ?, ?, ?)"
        for number, *texts in self.database.execute(sql, (file,)).fetchall():
            self.database.execute(delete, (number, *_indexed(*texts)))
        own = "SELECT id FROM passages WHERE file = ?"
        self.database.execute(f"DELETE FROM vectors WHERE passage IN ({own})", (file,))
        self.database.execute("DELETE FROM passages WHERE file = ?", (file,))
        self.database.execute("DELETE FROM files WHERE id = ?", (file,))

    def add_passage(self, file: int, document: ParsedDocument, passage: Passage, key: bytes) -> int:
        """Add a passage of a file and return its id; `key` identifies the text to embed."""
        title, heading, text = document.title, passage.heading, passage.text
        values = [document.id, title, heading, passage.line, document.unit]
        values += [passage.start, passage.end, text]
        sql = f"INSERT INTO passages (file, {COLUMNS}, key, sum) VALUES (?{', ?' * 10})"
        number = self._insert(sql, (file, *values, key, checksum(values)))
        words = (number, *_indexed(title, heading, text))
        self.database.execute("INSERT INTO words (rowid, title, text) VALUES (?, ?, ?)", words)
        new = distinct_words(f"{title} {heading} {text}") - self._seen
        rows = [(word,) for word in new]
        self.database.executemany("INSERT OR IGNORE INTO vocabulary VALUES (?)", rows)
        if len(self._seen) > MOST_SEEN:
            self._seen.clear()
        self._seen |= new
        return number

    def roll_back_to(self, savepoint: str) -> None:
        """Roll back to a savepoint, and forget which words the vocabulary has."""
        self.database.execute(f"ROLLBACK TO {savepoint}")
        self._seen.clear()

    def add_segment(self, segment: Segment) -> int:
        """Add a segment whose file is on the disk; equal content is stored once."""
        sql = "INSERT OR IGNORE INTO segments (name, sha256, rows, dimension, dtype)"
        self.database.execute(f"{sql} VALUES (?, ?, ?, ?, ?)", astuple(segment)[1:])
        row = self.database.execute("SELECT id FROM segments WHERE name = ?", (segment.name,))
        return int(row.fetchone()[0])

    def remove_segment(self, segment: int) -> None:
        """Remove a segment and what is recorded of its vectors; its file is swept later."""
        for table, column in (("vectors", "segment"), ("pending", "segment"), ("segments", "id")):
            self.database.execute(f"DELETE FROM {table} WHERE {column} = ?", (segment,))

    def set_vectors(self, rows: Iterable[tuple[int, int, int, bytes]]) -> None:
        """Record vectors of passages that are still stored: (segment, row, passage, its key)."""
        stored = "SELECT id, ?, ? FROM passages WHERE id = ? AND key = ?"
        sql = f"INSERT OR REPLACE INTO vectors (passage, segment, row) {stored}"
        self.database.executemany(sql, rows)

    def set_pending(self, rows: Iterable[tuple[bytes, int, int]]) -> None:
        """Record vectors of passages that will be stored later: (key, segment, row)."""
        self.database.executemany("INSERT OR REPLACE INTO pending VALUES (?, ?, ?)", rows)

    def vector_of(self, key: bytes) -> tuple[int, int] | None:
        """Return the segment and row of a passage with the same content, if any."""
        same = "SELECT id FROM passages WHERE key = ? LIMIT 4"
        sql = f"SELECT segment, row FROM vectors WHERE passage IN ({same})"
        sql += " UNION ALL SELECT segment, row FROM pending WHERE key = ? LIMIT 1"
        row = self.database.execute(sql, (key, key)).fetchone()
        return row and (int(row[0]), int(row[1]))

    def segments(self) -> list[Segment]:
        """All segments."""
        sql = "SELECT id, name, sha256, rows, dimension, dtype FROM segments ORDER BY id"
        return [Segment(*row) for row in self.database.execute(sql)]

    def files(self, condition: str = "1", *values: object) -> list[StoredFile]:
        """The files that match a condition in SQL."""
        sql = f"SELECT id, path, kind, size, modified, sha256 FROM files WHERE {condition}"
        return [StoredFile(*row) for row in self.database.execute(sql, values)]

    def file(self, path: str) -> StoredFile | None:
        """The file of this path, if there is one."""
        return next(iter(self.files("path = ?", path)), None)

    def count(self, table: str = "passages") -> int:
        """The number of passages, files or vectors."""
        return int(self.database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def neighbours(self, passage: int) -> list[int]:
        """The ids of all passages of a passage's file or record, in order."""
        sql = "SELECT n.id FROM passages n JOIN passages p ON n.file = p.file"
        sql += " AND n.document = p.document WHERE p.id = ? ORDER BY n.first, n.id"
        return [number for (number,) in self.database.execute(sql, (passage,))]

    def passages(self, ids: Sequence[int]) -> list[StoredPassage]:
        """Return passages by id, in this order; a damaged one is an error that names the index."""
        listed = ", ".join(str(int(number)) for number in ids)
        sql = f"SELECT p.id, p.sum, f.path, f.kind, f.modified, {COLUMNS} FROM passages p"
        rows = self.database.execute(
            f"{sql} JOIN files f ON f.id = p.file WHERE p.id IN ({listed})"
        )
        path, by_id = self.folder / DATABASE, dict[int, StoredPassage]()
        for number, total, file, kind, modified, *values in rows:
            if checksum(values) != total:
                raise damaged(path, f"passage {number} is not what was written")
            by_id[number] = StoredPassage(number, file, kind, modified, *values)
        for number in ids:
            if number not in by_id:
                raise damaged(path, f"passage {number} is missing")
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
