"""Updates of an index: new and changed files are read, split, embedded and committed."""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.files import PACKED, digest, open_bytes, reading
from bertsmith.ledger import Ledger
from bertsmith.search.documents import BINARY, MINIFIED, kind_of, read_documents
from bertsmith.search.embedding import PassageEmbedder
from bertsmith.search.encoder import TextEncoder
from bertsmith.search.encodings import is_text
from bertsmith.search.formats import ParsedDocument
from bertsmith.search.passages import READING, Chunking, Passage, cut, joined_text
from bertsmith.search.scan import Patterns, SourceFile, scan, text_key, under
from bertsmith.search.store import Store, StoredFile, sweep_segments

ADDED = "added"  # the kind of documents that were added from Python
PACKING = 4  # characters to a byte of a compressed file, roughly
COMMIT_PASSAGES, COMMIT_SECONDS = 8192, 60.0  # after which a transaction ends, at a file's end
LARGE = 1 << 20  # bytes of text from which a file is embedded in parts
LEFT_OUT = {BINARY: "files that hold no text (binary)", MINIFIED: "minified files and source maps"}
FRESH = 2_000_000_000  # nanoseconds; a file this young may change without a new time


@dataclass
class IndexUpdate:
    """What an update did."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    moved: int = 0  # by `Index.move`
    unchanged: int = 0
    passages: int = 0  # written
    embedded: int = 0  # texts; passages of equal texts share a vector
    repaired: list[str] = field(default_factory=list)  # segments that were damaged
    problems: list[dict[str, str]] = field(default_factory=list)  # files that could not be read
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The counts as plain values."""
        return asdict(self)


Report = Callable[[int, int, IndexUpdate], None]  # work done, work in all (bytes of text), counts


def silent(done: int, total: int, update: IndexUpdate) -> None:
    """Report nothing."""


class Updater:
    """Updates of a store by the process that holds its lock."""

    def __init__(
        self, store: Store, encoder: TextEncoder | None, ledger: Ledger, report: Report = silent
    ) -> None:
        self.store, self.encoder, self.ledger, self.report = store, encoder, ledger, report
        self.chunking = Chunking(**store.meta()["chunking"])
        self.update = IndexUpdate()
        self.vectors = PassageEmbedder(store, encoder, self._progress)
        self.written = 0  # passages since the last commit
        self.committed = time.monotonic()

    def _progress(self, done: int, total: int) -> None:
        self.update.embedded = self.vectors.embedded
        self.report(done, total, self.update)

    def folders(
        self, roots: Sequence[Path], patterns: Patterns, missing: Sequence[Path]
    ) -> IndexUpdate:
        """Update the index from folders: new, changed and removed files.

        Files of `missing` folders, and of those that cannot be read, stay in the index.
        """
        meta, now = self.store.meta(), time.time_ns()
        with self._running():
            former = self._former_files()
            with self.store.transaction():  # now, so that a killed run can be resumed
                folders = list(dict.fromkeys([*meta.get("roots", []), *map(str, roots)]))
                self._set_meta(roots=folders, patterns={**meta.get("patterns", {}), **patterns})
            files, unread = scan(roots, self.ledger, patterns)
            unread |= {text_key(path): "no such file or folder" for path in missing}
            self._report_unread(unread, list(former))
            fresh = int(meta.get("checked", 0)) - FRESH
            work = [file for file in files if not _same(file, former.get(file.key), fresh)]
            self.update.unchanged = len(files) - len(work)
            self.vectors.begin(sum(map(_weight, work)))
            with self._portions() as end_of_file:
                for file in work:
                    end = self.vectors.read + _weight(file)
                    self._one_file(file, former.get(file.key), end)
                    self.vectors.advance(end, end)
                    self.vectors.show_progress()
                    end_of_file()
                # Last, so that vectors of files that moved can be used again.
                seen = {file.key for file in files}
                for key in former.keys() - seen:
                    kept = any(under(key, path) for path in unread)
                    if not kept and any(under(key, root) for root in roots):
                        self.store.remove_file(former[key].id)
                        self.update.removed += 1
                self.store.database.execute("DELETE FROM pending")
                if {*self.store.meta()["roots"]} == {*map(str, roots)}:
                    self._set_meta(reading=READING)
            self._report_copies(roots)
            self.store.set_meta(checked=now)
        return self.update

    def _former_files(self) -> dict[str, StoredFile]:
        """The files of the index; those that an earlier version read look changed."""
        files = self.store.files("kind != ?", ADDED)
        if self.store.meta().get("reading") == READING:
            return {file.path: file for file in files}
        return {file.path: file._replace(modified=-1, sha256="") for file in files}

    def _report_unread(self, unread: Mapping[str, str], former: Sequence[str]) -> None:
        """Report folders that cannot be read, and that their files stay in the index."""
        for path, reason in unread.items():
            kept = sum(under(key, path) for key in former)
            if kept:
                reason += f"; what the index has of it is kept (files: {kept:,}): drop it from the"
                reason += " index, or move it to the folder's new place"
            if kept or "cannot be read" in reason:
                self.update.problems.append({"file": path, "reason": reason})

    def _set_meta(self, **values: object) -> None:
        """Store settings that changed; others would count as a change of the index."""
        meta = self.store.meta()
        changed = {key: value for key, value in values.items() if meta.get(key) != value}
        self.store.set_meta(**changed)

    def _report_copies(self, roots: Sequence[Path]) -> None:
        """Report folders that are gone and whose files are also in the folders just read."""
        stored = map(Path, self.store.meta().get("roots", []))
        for gone in [path for path in stored if path not in roots and not path.exists()]:
            files = self.store.files()
            sums = {file.sha256 for file in files if under(file.path, gone)}
            for root in roots:
                copies = sum(file.sha256 in sums and under(file.path, root) for file in files)
                if copies:
                    command = f"bertsmith index --out {self.store.root} --move {gone} {root}"
                    reason = f"no longer exists, and {root} holds copies (files: {copies:,}); if it"
                    reason += f" was moved: {command}"
                    self.update.problems.append({"file": str(gone), "reason": reason})

    def _one_file(self, file: SourceFile, former: StoredFile | None, end: int) -> None:
        """Read a file again; if that fails, keep its old passages."""
        execute = self.store.database.execute
        try:
            with reading(file.path):
                if kind_of(file.path) in ("text", "code"):
                    with open_bytes(file.path) as (stream, _):
                        if not is_text(stream.read(8192)):
                            raise BertsmithError(BINARY)
                sha256 = digest(file.path)
            if former is None and self.store.file(file.key):
                raise BertsmithError("a document of this id was added from Python")
            if former and former.sha256 == sha256:
                state = (file.size, file.modified, former.id)
                execute("UPDATE files SET size = ?, modified = ? WHERE id = ?", state)
                self.update.unchanged += 1
                return
            self._embed_ahead(file, end)
            values = (file.key, kind_of(file.path), file.size, file.modified, sha256)
            with self._savepoint():
                number = self._store(former, values, read_documents(file.path, self.ledger), end)
                with reading(file.path):
                    now = file.path.stat()
                if (now.st_size, now.st_mtime_ns) != (file.size, file.modified):
                    execute("UPDATE files SET modified = -1 WHERE id = ?", (number,))
        except BertsmithError as error:
            if former and MINIFIED in str(error):  # written by an earlier version
                self.store.remove_file(former.id)
                self.update.removed += 1
                former = None
            what = next((what for why, what in LEFT_OUT.items() if why in error.message), None)
            if what is not None:
                self.ledger.note(f"{what}, left out")
            if what is None or former:
                reason = error.for_everyone().removeprefix(f"{file.path}").lstrip(":, ")
                reason += "; its former content is kept" if former else ""
                self.update.problems.append({"file": file.key, "reason": reason})

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        """Changes that are undone after an error, while the transaction goes on."""
        waiting = len(self.vectors.passages)
        counts = self.update.added, self.update.changed, self.update.passages, self.written
        self.store.database.execute("SAVEPOINT one_file")
        try:
            yield
        except BaseException:
            self.store.roll_back_to("one_file")
            del self.vectors.passages[waiting:]
            self.update.added, self.update.changed, self.update.passages, self.written = counts
            raise
        finally:
            self.store.database.execute("RELEASE one_file")

    def documents(
        self, documents: Iterable[tuple[str, ParsedDocument]], finish: bool = True
    ) -> IndexUpdate:
        """Add documents by id; existing ones are replaced."""
        with self._running(finish), self._portions() as end_of_file:
            for name, document in documents:
                content = f"{document.title}\0{document.text}".encode("utf-8", "replace")
                sha256 = hashlib.sha256(content).hexdigest()
                former = self.store.file(name)
                if former and former.kind != ADDED:
                    raise BertsmithError(f"{name}: is the path of an indexed file, not an id")
                if former and former.sha256 == sha256:
                    self.update.unchanged += 1
                    continue
                self._store(former, (name, ADDED, len(content), time.time_ns(), sha256), [document])
                end_of_file()
        return self.update

    def remove(self, names: Sequence[str]) -> IndexUpdate:
        """Remove files by path, or added documents by id."""
        with self._running(), self._portions():
            for name in names:
                former = self.store.file(name)
                if former is None:
                    raise BertsmithError(f"{name}: no such file or document in the index")
                self.store.remove_file(former.id)
                self.update.removed += 1
        return self.update

    def _store(
        self,
        former: StoredFile | None,
        values: tuple[str, str, int, int, str],
        documents: Iterable[ParsedDocument],
        end: int = 0,
    ) -> int:
        """Store a file in the place of its `former` content; `end` is the progress at its end."""
        if former is not None:  # its vectors are used again: it is removed afterwards
            renamed = "UPDATE files SET path = path || char(0) WHERE id = ?"
            self.store.database.execute(renamed, (former.id,))
        file = self.store.add_file(*values)
        for document, passage, text, key in self._passages(documents):
            number = self.store.add_passage(file, document, passage, key)
            self.vectors.add(number, key, text)
            self.vectors.advance(len(passage.text), end)
            self.update.passages += 1
            self.written += 1
        if former is None:
            self.update.added += 1
        else:
            self.store.remove_file(former.id)
            self.update.changed += 1
        return file

    def _embed_ahead(self, file: SourceFile, end: int) -> None:
        """Embed a large file in parts, and commit the vectors of each by the keys of passages.

        The file itself is written afterwards, in one transaction: readers see all of it or nothing,
        and an interrupted run finds the vectors again.
        """
        if self.encoder is None or _weight(file) < LARGE:
            return
        self._commit()  # what came before
        for _, passage, text, key in self._passages(read_documents(file.path, Ledger())):
            self.vectors.advance(len(passage.text), end)
            if self.store.vector_of(key) is None:
                self.vectors.want(key, text)
            if self._late() or len(self.vectors.keys) >= COMMIT_PASSAGES:
                self._commit(ahead=True)
        self._commit(ahead=True)

    def _passages(
        self, documents: Iterable[ParsedDocument]
    ) -> Iterator[tuple[ParsedDocument, Passage, str, bytes]]:
        """Passages with the text that is embedded and its key: equal texts share a vector."""
        for document in documents:
            for passage in cut(document, self.chunking):
                text = joined_text(document.title, passage.heading, passage.text)
                key = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()
                yield document, passage, text, key

    @contextmanager
    def _running(self, finish: bool = True) -> Iterator[None]:
        """Repair the index before an update; embed, merge and seal what it left afterwards."""
        start = time.monotonic()
        self.update.repaired = self.vectors.repair()
        yield
        if finish:
            with self.store.transaction():
                self.vectors.fill()
            self.vectors.merge()
            sweep_segments(self.store)
            self.store.seal()
        self.update.seconds = round(time.monotonic() - start, 3)

    @contextmanager
    def _portions(self) -> Iterator[Callable[[], None]]:
        """A transaction that is committed at intervals, always at the end of a file."""

        def end_of_file() -> None:
            if self.written >= COMMIT_PASSAGES or (self._late() and self.written):
                self._commit()

        with self.store.transaction():  # the last transaction is committed or rolled back
            yield end_of_file
            self.vectors.flush()

    def _late(self) -> bool:
        return time.monotonic() - self.committed > COMMIT_SECONDS

    def _commit(self, ahead: bool = False) -> None:
        self.vectors.flush(ahead)
        self.store.commit()
        self.written, self.committed = 0, time.monotonic()
        self.store.begin()


def _weight(file: SourceFile) -> int:
    """The bytes of text of a file, roughly."""
    return file.size * (PACKING if file.path.suffix in PACKED else 1)


def _same(file: SourceFile, former: StoredFile | None, fresh: int) -> bool:
    """Whether size and time show that a file is unchanged; very recent ones are read again."""
    state = (file.size, file.modified)
    return file.modified < fresh and former is not None and state == (former.size, former.modified)
