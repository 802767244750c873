"""Updates of an index: new and changed files are read, split, embedded and committed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.files import digest, open_bytes, reading
from bertsmith.ledger import Ledger
from bertsmith.search.documents import (
    BINARY,
    MINIFIED,
    Document,
    kind_of,
    packed,
    read_documents,
)
from bertsmith.search.encoder import Encoder
from bertsmith.search.encodings import is_text
from bertsmith.search.passages import READING, Chunking, Passage, cut, joined_text
from bertsmith.search.scan import SourceFile, scan, text_key, under
from bertsmith.search.segments import DamagedSegmentError, Matrix, open_segment, write_segment
from bertsmith.search.store import Store, sweep_segments

ADDED = "added"  # the kind of documents that were added from Python
BATCH = 256  # passages that are sorted by length before they are embedded
STEP, STEP_SECONDS = 16, 0.5  # passages between two reports; more where they take less time
PACKING = 4  # characters to a byte of a compressed file, roughly
SEGMENT_ROWS = 16_384  # vectors of a segment while it is written
COMMIT_PASSAGES, COMMIT_SECONDS = 8192, 60.0  # after which a transaction ends, at a file's end
LARGE = 1 << 20  # bytes of text from which a file is embedded in parts
LEFT_OUT = {BINARY: "files that hold no text (binary)", MINIFIED: "minified files and source maps"}
FRESH = 2_000_000_000  # nanoseconds; a file this young may change without a new time
MOST_SEGMENTS = 8  # small ones, before they are merged
MERGED_BYTES = 128 << 20


@dataclass
class Update:
    """What an update did."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    moved: int = 0  # by `Index.move`
    unchanged: int = 0
    passages: int = 0  # written
    embedded: int = 0  # of them; the others had vectors already
    repaired: list[str] = field(default_factory=list)  # segments that were damaged
    problems: list[dict[str, str]] = field(default_factory=list)  # files that could not be read
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The counts as plain values."""
        return asdict(self)


Report = Callable[[int, int, Update], None]  # work done, work in all (bytes of text), counts


def silent(done: int, total: int, update: Update) -> None:
    """Report nothing."""


class Updater:
    """Updates of a store by the process that holds its lock."""

    def __init__(
        self,
        store: Store,
        encoder: Encoder | None,
        ledger: Ledger,
        report: Report = silent,
    ) -> None:
        self.store, self.encoder, self.ledger, self.report = store, encoder, ledger, report
        meta = store.meta()
        self.chunking = Chunking(**meta["chunking"])
        self.dtype = str(meta["dtype"])
        self.update = Update()
        # Passages that have no vector yet: their numbers, or keys where they are not stored yet.
        self.texts: list[tuple[int | bytes, str]] = []
        self.rows: list[int | bytes] = []  # the passages of the segment that is being filled
        self.vectors: list[Matrix] = []
        # Segments on the disk that are not in the database yet, and the passages of their rows.
        self.ready: list[tuple[tuple[str, str, int, int], list[int | bytes]]] = []
        self.written = 0  # passages since the last commit
        self.since = time.monotonic()
        self.read = self.file_end = self.done = self.total = 0  # bytes of text
        self.step, self.batch = STEP, BATCH

    # -------------------------------------------------------------- folders

    def folders(
        self,
        roots: Sequence[Path],
        patterns: Mapping[str, Mapping[str, list[str]]] | None = None,
        missing: Sequence[Path] = (),
    ) -> Update:
        """Update the index from folders: new, changed and removed files.

        Files of `missing` folders, and of those that cannot be read, stay in the index.
        """
        start = time.monotonic()
        self._repair()
        checked = int(self.store.meta().get("checked", 0))
        now = time.time_ns()
        known = self._known()
        self._remember(roots, patterns or {})  # now, so that a run that is killed can be resumed
        found = scan(roots, self.ledger, patterns or {})
        files = found.files
        found.unread |= {text_key(path): "no such file or folder" for path in missing}
        self._keep(found.unread, list(known))
        seen = {file.key for file in files}
        fresh = checked - FRESH
        work = [file for file in files if not _same(file, known.get(file.key), fresh)]
        self.update.unchanged = len(files) - len(work)
        self.read, self.done, self.total = 0, 0, sum(map(_weight, work))
        self.report(0, self.total, self.update)
        gone = [key for key in known if key not in seen and any(under(key, r) for r in roots)]
        gone = [key for key in gone if not any(under(key, path) for path in found.unread)]
        with self._portions() as end_of_file:
            for file in work:
                self.file_end = self.read + _weight(file)
                self._one_file(file, known.get(file.key))
                self.read = self.file_end
                self._report()
                end_of_file()
            for key in gone:  # last, so that vectors of moved files can be reused
                self.store.remove_file(known[key][0])
                self.update.removed += 1
            self.store.database.execute("DELETE FROM pending")
            meta = self.store.meta()
            if meta.get("reading") != READING and set(meta["roots"]) == set(map(str, roots)):
                self.store.set_meta(reading=READING)
        self._warn_of_copies(roots)
        self.store.set_meta(checked=now)
        self._finish()
        self.update.seconds = round(time.monotonic() - start, 3)
        return self.update

    def _known(self) -> dict[str, tuple[int, int, int, str]]:
        """The files of the index; those that an earlier version read look changed."""
        same = self.store.meta().get("reading") == READING
        rows = self.store.database.execute(
            "SELECT path, id, size, modified, sha256 FROM files WHERE kind != ?", (ADDED,)
        )
        return {
            path: (number, size, modified if same else -1, sha256 if same else "")
            for path, number, size, modified, sha256 in rows
        }

    def _keep(self, unread: Mapping[str, str], known: Sequence[str]) -> None:
        """Report folders that cannot be read, and that their files stay in the index."""
        for path, reason in unread.items():
            kept = sum(under(key, path) for key in known)
            if kept:
                reason += f"; what the index has of it is kept (files: {kept:,}); --drop removes"
                reason += " it, --move OLD NEW follows a folder that was moved"
            if kept or "cannot be read" in reason:
                self.update.problems.append({"file": path, "reason": reason})

    def _remember(
        self, roots: Sequence[Path], patterns: Mapping[str, Mapping[str, list[str]]]
    ) -> None:
        meta = self.store.meta()
        former = meta.get("roots", [])
        listed = list(dict.fromkeys([*former, *map(str, roots)]))
        values = {"roots": listed, "patterns": {**meta.get("patterns", {}), **patterns}}
        with self.store.transaction():
            for key, value in values.items():
                if meta.get(key) != value:
                    self.store.set_meta(**{key: value})

    def _warn_of_copies(self, roots: Sequence[Path]) -> None:
        """Report folders that are gone and whose files are also in the folders just read."""
        listed = map(Path, self.store.meta().get("roots", []))
        for former in [one for one in listed if one not in roots and not one.exists()]:
            rows = self.store.database.execute("SELECT path, sha256 FROM files").fetchall()
            sums = {sha256 for path, sha256 in rows if under(path, former)}
            for root in roots:
                copies = sum(sha256 in sums and under(path, root) for path, sha256 in rows)
                if copies:
                    reason = f"no longer exists, and {root} holds copies (files: {copies:,}); if it"
                    reason += f" was moved: bertsmith index --out {self.store.root} --move {former}"
                    reason += f" {root}"
                    self.update.problems.append({"file": str(former), "reason": reason})

    # -------------------------------------------------------------- folders that moved

    def move(self, old: Path, new: Path) -> Update:
        """Record that a folder, or what is above some folders, has another place now."""
        meta = self.store.meta()

        def moved(path: str) -> str:
            return text_key(new) + path[len(text_key(old)) :] if under(path, old) else path

        roots = [moved(root) for root in meta.get("roots", [])]
        if not any(under(text_key(new), root) for root in roots):
            roots.append(text_key(new))
        kept = {moved(root): value for root, value in meta.get("patterns", {}).items()}
        with self.store.transaction():
            for number, path in self._below(old):
                target = moved(path)
                row = self.store.database.execute("SELECT 1 FROM files WHERE path = ?", (target,))
                if row.fetchone():  # the new folder was indexed too
                    self.store.remove_file(number)
                    self.update.removed += 1
                else:
                    values = (target, number)
                    self.store.database.execute("UPDATE files SET path = ? WHERE id = ?", values)
                    self.update.moved += 1
            self.store.set_meta(roots=list(dict.fromkeys(roots)), patterns=kept)
        self.store.seal()
        return self.update

    def drop(self, folder: Path) -> Update:
        """Remove a folder and its files from the index."""
        with self.store.transaction():
            for number, _ in self._below(folder):
                self.store.remove_file(number)
                self.update.removed += 1
            roots = self.store.meta().get("roots", [])
            self.store.set_meta(roots=[root for root in roots if not under(root, folder)])
        self.store.seal()
        return self.update

    def _below(self, folder: Path) -> list[tuple[int, str]]:
        """The files of a folder; an error if the index has none and was not built from it."""
        rows = self.store.database.execute(
            "SELECT id, path FROM files WHERE kind != ?", (ADDED,)
        ).fetchall()
        below = [(number, path) for number, path in rows if under(path, folder)]
        roots = self.store.meta().get("roots", [])
        if not below and not any(under(root, folder) for root in roots):
            raise BertsmithError(
                f"{folder}: not in the index {self.store.root}; its folders: {', '.join(roots)}"
            )
        return below

    def _one_file(self, file: SourceFile, known: tuple[int, int, int, str] | None) -> None:
        """Read a file again; if that fails, keep its old passages."""
        kept, floor = self.store.database, 1 << 62
        counts = self.update.passages, self.update.embedded, self.written
        try:
            if kind_of(file.path) in ("text", "code") and not _holds_text(file.path):
                raise BertsmithError(BINARY)
            with reading(file.path):
                sha256 = digest(file.path)
            if known is None and self._is_added(file.key):
                raise BertsmithError("a document of this id was added from Python")
            if known and known[3] == sha256:
                kept.execute(
                    "UPDATE files SET size = ?, modified = ? WHERE id = ?",
                    (file.size, file.modified, known[0]),
                )
                self.update.unchanged += 1
                return
            self._embed_ahead(file)
            kept.execute("SAVEPOINT one_file")
            try:
                former = self._take_vectors(known[0]) if known else {}
                if known:
                    self.store.remove_file(known[0])
                floor = kept.execute("SELECT coalesce(max(id), 0) FROM passages").fetchone()[0]
                number = self.store.add_file(
                    file.key, kind_of(file.path), file.size, file.modified, sha256
                )
                for document in read_documents(file.path, self.ledger):
                    self._passages(number, document, former)
                with reading(file.path):
                    state = file.path.stat()
                if (state.st_size, state.st_mtime_ns) != (file.size, file.modified):
                    kept.execute("UPDATE files SET modified = -1 WHERE id = ?", (number,))
            except BaseException:
                kept.execute("ROLLBACK TO one_file")
                raise
            finally:
                kept.execute("RELEASE one_file")
        except BertsmithError as error:
            self._forget_above(floor)
            self.store.rolled_back()
            self.update.passages, self.update.embedded, self.written = counts
            if known and MINIFIED in str(error):  # written by an earlier version
                self.store.remove_file(known[0])
                self.update.removed += 1
                known = None
            self._problem(file, error, known is not None)
            return
        if known:
            self.update.changed += 1
        else:
            self.update.added += 1

    def _is_added(self, key: str) -> bool:
        row = self.store.database.execute("SELECT kind FROM files WHERE path = ?", (key,))
        return row.fetchone() == (ADDED,)

    def _forget_above(self, floor: int) -> None:
        """Drop pending passages with ids above `floor`, those of a file that failed."""

        def kept(number: int | bytes) -> bool:
            return isinstance(number, bytes) or number <= floor

        self.texts = [(number, text) for number, text in self.texts if kept(number)]
        for passages in (self.rows, *(passages for _, passages in self.ready)):
            passages[:] = [number if kept(number) else -1 for number in passages]

    def _problem(self, file: SourceFile, error: BertsmithError, known: bool) -> None:
        for reason, what in LEFT_OUT.items():
            if reason in str(error):
                self.ledger.note(f"{what}, left out")
                if not known:
                    return
        reason = str(error).removeprefix(f"{file.path}: ")
        if known:
            reason += "; its former content is kept"
        self.update.problems.append({"file": file.key, "reason": reason})

    # -------------------------------------------------------------- documents from Python

    def documents(self, documents: Iterable[tuple[str, Document]], finish: bool = True) -> Update:
        """Add documents by id; existing ones are replaced."""
        start = time.monotonic()
        self._repair()
        with self._portions() as end_of_file:
            for name, document in documents:
                content = f"{document.title}\0{document.text}".encode("utf-8", "replace")
                sha256 = hashlib.sha256(content).hexdigest()
                row = self.store.database.execute(
                    "SELECT id, sha256, kind FROM files WHERE path = ?", (name,)
                ).fetchone()
                if row and row[2] != ADDED:
                    raise BertsmithError(f"{name}: is the path of an indexed file, not an id")
                if row and row[1] == sha256:
                    self.update.unchanged += 1
                    continue
                former = self._take_vectors(row[0]) if row else {}
                if row:
                    self.store.remove_file(row[0])
                    self.update.changed += 1
                else:
                    self.update.added += 1
                now = time.time_ns()
                number = self.store.add_file(name, ADDED, len(content), now, sha256)
                self._passages(number, document, former)
                end_of_file()
        if finish:
            self._finish()
        self.update.seconds = round(time.monotonic() - start, 3)
        return self.update

    def remove(self, names: Sequence[str]) -> Update:
        """Remove files by path, or added documents by id."""
        self._repair()
        with self._portions():
            for name in names:
                row = self.store.database.execute(
                    "SELECT id FROM files WHERE path = ?", (name,)
                ).fetchone()
                if row is None:
                    raise BertsmithError(f"{name}: no such file or document in the index")
                self.store.remove_file(row[0])
                self.update.removed += 1
        self._finish()
        return self.update

    # -------------------------------------------------------------- passages and vectors

    def _passages(
        self, file: int, document: Document, former: dict[bytes, tuple[int, int]]
    ) -> None:
        for passage in cut(document, self.chunking):
            text, key = _content(document, passage)
            place = former.get(key) or self.store.vector_of(key)
            values = (
                document.id,
                document.title,
                passage.heading,
                passage.line,
                document.unit,
                passage.start,
                passage.end,
                passage.text,
            )
            number = self.store.add_passage(file, values, key)
            self.update.passages += 1
            self.written += 1
            if place is not None:
                self.store.set_vectors([(number, *place)])
            elif self.encoder is not None:
                self.texts.append((number, text))
                if len(self.texts) >= self.batch:
                    self._embed()
            self.read = min(self.read + len(passage.text), self.file_end)

    def _embed_ahead(self, file: SourceFile) -> None:
        """Embed a large file in parts, and commit the vectors of each by the keys of passages.

        The file itself is written afterwards, in one transaction: readers see all of it or nothing,
        and an interrupted run finds the vectors again.
        """
        if self.encoder is None or _weight(file) < LARGE:
            return
        self._commit()  # what came before
        for document in read_documents(file.path, Ledger()):
            for passage in cut(document, self.chunking):
                text, key = _content(document, passage)
                self.read = min(self.read + len(passage.text), self.file_end)
                if self.store.vector_of(key) is None:
                    self.texts.append((key, text))
                if len(self.texts) >= self.batch:
                    self._embed()
                    if self._late() or len(self.rows) >= COMMIT_PASSAGES:
                        self._commit()
        self._commit()

    def _take_vectors(self, file: int) -> dict[bytes, tuple[int, int]]:
        """Return where the vectors of a file's passages are, before the file is read again."""
        rows = self.store.database.execute(
            "SELECT p.key, v.segment, v.row FROM passages p JOIN vectors v ON v.passage = p.id"
            " WHERE p.file = ?",
            (file,),
        )
        return {key: (segment, row) for key, segment, row in rows}

    def _embed(self) -> None:
        """Embed the pending passages."""
        if not self.texts or self.encoder is None:
            return
        self.texts.sort(key=lambda pair: -len(pair[1]))
        while self.texts:
            begin = time.monotonic()
            part, self.texts = self.texts[: self.step], self.texts[self.step :]
            self.vectors.append(self.encoder.embed([text for _, text in part]))
            self.batch = self.encoder.portion(BATCH)
            if time.monotonic() - begin < STEP_SECONDS:
                self.step = min(2 * self.step, self.batch)
            self.rows += [number for number, _ in part]
            self.update.embedded += len(part)
            self._report()
        if len(self.rows) >= SEGMENT_ROWS:
            self._write_segment()

    def _report(self) -> None:
        """Report how much of the text has been read and embedded."""
        waiting = sum(len(text) for _, text in self.texts)
        self.done = max(self.done, self.read - waiting)
        self.report(self.done, self.total, self.update)

    def _write_segment(self) -> None:
        if self.rows:
            written = write_segment(self.store.folder, self.vectors, self.dtype)
            self.ready.append((written, self.rows))
            self.rows, self.vectors = [], []

    def _flush(self) -> None:
        """Embed the pending passages, and record all segments in the database."""
        self._embed()
        self._write_segment()
        for (name, sha256, rows, dimension), passages in self.ready:
            segment = self.store.add_segment(name, sha256, rows, dimension, self.dtype)
            for row, number in enumerate(passages):
                if isinstance(number, bytes):
                    self.store.set_pending(number, segment, row)
                elif number >= 0:
                    self.store.set_vectors([(number, segment, row)])
        self.ready = []

    @contextmanager
    def _portions(self) -> Iterator[Callable[[], None]]:
        """A transaction that is committed at intervals, always at the end of a file."""

        def end_of_file() -> None:
            if self.written >= COMMIT_PASSAGES or (self._late() and self.written):
                self._commit()

        with self.store.transaction():  # the last transaction is committed or rolled back
            yield end_of_file
            self._flush()

    def _late(self) -> bool:
        return time.monotonic() - self.since > COMMIT_SECONDS

    def _commit(self) -> None:
        """Commit all that was done, and begin the next transaction."""
        self._flush()
        self.store.commit()
        self.written, self.since = 0, time.monotonic()
        self.store.begin()

    # -------------------------------------------------------------- repair and merging

    def _repair(self) -> None:
        """Rebuild damaged segments and missing vectors from the text."""
        sweep_segments(self.store)
        damaged = []
        for segment in self.store.segments():
            try:
                open_segment(self.store.folder, segment, verify=True)
            except DamagedSegmentError as error:
                damaged.append(error)
        if damaged:
            with self.store.transaction():
                for one in damaged:
                    number = (one.segment.id,)
                    for table in ("vectors", "pending"):
                        sql = f"DELETE FROM {table} WHERE segment = ?"
                        self.store.database.execute(sql, number)
                    self.store.database.execute("DELETE FROM segments WHERE id = ?", number)
                # A new file of the same content takes the place of the damaged one.
                self._fill()
            self.update.repaired = [one.segment.name for one in damaged]

    def _fill(self) -> None:
        """Embed every passage that has no vector, within a transaction."""
        if self.encoder is None:
            return
        missing = self.store.count() - self.store.count("vectors")
        last = 0
        lengths = "SELECT coalesce(sum(length(text)), 0) FROM passages WHERE id NOT IN"
        lengths += " (SELECT passage FROM vectors)"
        self.read, self.done, (self.total,) = 0, 0, self.store.database.execute(lengths).fetchone()
        while missing:
            rows = self.store.database.execute(
                "SELECT id, title, heading, text FROM passages WHERE id > ? AND id NOT IN"
                " (SELECT passage FROM vectors) ORDER BY id LIMIT ?",
                (last, self.batch),
            ).fetchall()
            if not rows:
                break
            last = rows[-1][0]
            self.texts += [(n, joined_text(*parts)) for n, *parts in rows]
            self.read += sum(len(parts[-1]) for _, *parts in rows)
            self._embed()
        self._flush()

    def _finish(self) -> None:
        if self.encoder is not None and self.store.count() > self.store.count("vectors"):
            with self.store.transaction():
                self._fill()
        self.merge()
        sweep_segments(self.store)
        self.store.seal()

    def merge(self) -> None:
        """Merge small segments and segments with few rows in use."""
        used = dict(
            self.store.database.execute(
                "SELECT segment, count(DISTINCT row) FROM vectors GROUP BY segment"
            )
        )
        rows = self.store.database.execute("SELECT DISTINCT segment FROM pending")
        pending = {segment for (segment,) in rows}
        segments = [one for one in self.store.segments() if one.id not in pending]
        unused = [one for one in segments if not used.get(one.id)]
        small = [one for one in segments if used.get(one.id) and one.rows < SEGMENT_ROWS]
        sparse = [one for one in segments if 0 < 2 * used.get(one.id, 0) < one.rows]
        chosen = sparse + (
            [one for one in small if one not in sparse] if len(small) > MOST_SEGMENTS else []
        )
        if not chosen and not unused:
            return
        with self.store.transaction():
            for segment in unused:
                self.store.database.execute("DELETE FROM segments WHERE id = ?", (segment.id,))
            for segment in chosen:
                self._move(segment)
            self._flush()
            for segment in chosen:
                self.store.database.execute("DELETE FROM segments WHERE id = ?", (segment.id,))

    def _move(self, segment: Any) -> None:
        """Copy the vectors in use from a segment to the one that is being filled."""
        rows = self.store.database.execute(
            "SELECT passage, row FROM vectors WHERE segment = ? ORDER BY row", (segment.id,)
        ).fetchall()
        matrix = open_segment(self.store.folder, segment, verify=True)
        self.vectors.append(matrix[[row for _, row in rows]])
        self.rows += [passage for passage, _ in rows]
        width = segment.dimension * matrix.itemsize
        if len(self.rows) * width >= MERGED_BYTES:
            self._write_segment()


def _content(document: Document, passage: Passage) -> tuple[str, bytes]:
    """Return the text of a passage that is embedded, and its key: equal texts share a vector."""
    text = joined_text(document.title, passage.heading, passage.text)
    return text, hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


def _weight(file: SourceFile) -> int:
    """The bytes of text of a file, roughly."""
    return file.size * (PACKING if packed(file.path) else 1)


def _same(file: SourceFile, known: tuple[int, int, int, str] | None, fresh: int) -> bool:
    """Whether size and time show that a file is unchanged; very recent ones are read again."""
    return (
        known is not None
        and (known[1], known[2]) == (file.size, file.modified)
        and file.modified < fresh
    )


def _holds_text(path: Path) -> bool:
    with reading(path), open_bytes(path) as (stream, _):
        return is_text(stream.read(8192))
