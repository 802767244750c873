"""Vectors of an index: computed for passages, written to segments, repaired and merged."""

import time
from collections.abc import Callable
from itertools import islice
from typing import Any

from bertsmith.search.encoder import TextEncoder
from bertsmith.search.passages import joined_text
from bertsmith.search.segments import DamagedSegmentError, Segment, open_segment, write_segment
from bertsmith.search.store import Store, sweep_segments

BATCH = 256  # passages that are sorted by length before they are embedded
STEP, STEP_SECONDS = 16, 0.5  # passages between two reports; more where they take less time
SEGMENT_ROWS = 16_384  # vectors of a segment while it is written
MOST_SEGMENTS = 8  # small ones, before they are merged
MERGED_BYTES = 128 << 20


class PassageEmbedder:
    """Computes vectors of passages, known by keys of their texts, and writes them to segments."""

    def __init__(
        self, store: Store, encoder: TextEncoder | None, report: Callable[[int, int], None]
    ) -> None:
        """`report` is called with how much text is read and embedded, of how much."""
        self.store, self.encoder, self.report = store, encoder, report
        self.dtype = str(store.meta()["dtype"])
        self.texts: dict[bytes, str] = {}  # that have no vector yet
        self.passages: list[tuple[int, bytes]] = []  # stored, but without their vectors
        self.keys: list[Any] = []  # of the rows of `matrices`
        self.matrices: list[Any] = []  # vectors (n, D) of the segment that is being filled
        self.segments: list[tuple[Segment, list[Any]]] = []  # on the disk, but not in the database
        self.known: set[bytes] = set()  # keys of all of these
        self.step, self.batch = STEP, BATCH
        self.embedded = 0  # texts
        self.total = self.read = self.done = 0  # bytes of text: in all, read, and embedded too

    def add(self, passage: int, key: bytes, text: str) -> None:
        """Give a stored passage the vector of an equal text, or one that is computed later."""
        place = self.store.vector_of(key)
        if place is not None:
            self.store.set_vectors([(*place, passage, key)])
        elif self.encoder is not None:
            self.passages.append((passage, key))
            self.want(key, text)

    def want(self, key: bytes, text: str) -> None:
        """Compute the vector of a text, unless it is computed already."""
        if key not in self.known:
            self.known.add(key)
            self.texts[key] = text
            if len(self.texts) >= self.batch:
                self.embed()

    def embed(self) -> None:
        """Embed the texts that wait, those of similar length together."""
        if not self.texts:
            return
        assert self.encoder is not None
        self.texts = dict(sorted(self.texts.items(), key=lambda item: -len(item[1])))
        while self.texts:
            begin = time.monotonic()
            keys = list(islice(self.texts, self.step))
            self.matrices.append(self.encoder.embed([self.texts.pop(key) for key in keys]))
            self.keys += keys
            self.batch = self.encoder.portion(BATCH)
            if time.monotonic() - begin < STEP_SECONDS:
                self.step = min(2 * self.step, self.batch)
            self.embedded += len(keys)
            self.show_progress()
        if len(self.keys) >= SEGMENT_ROWS:
            self._write_segment()

    def begin(self, total: int) -> None:
        """Begin work on so much text."""
        self.total, self.read, self.done = total, 0, 0
        self.show_progress()

    def advance(self, length: int, end: int) -> None:
        """Count text that was read; `end` is the count at the end of its file."""
        self.read = min(self.read + length, end)

    def show_progress(self) -> None:
        """Report how much of the text is read and embedded."""
        self.done = max(self.done, self.read - sum(map(len, self.texts.values())))
        self.report(self.done, self.total)

    def flush(self, ahead: bool = False) -> None:
        """Embed the texts that wait, and record all vectors; `ahead` of the passages, by key."""
        self.embed()
        places = self._record()
        if ahead:
            self.store.set_pending((key, *place) for key, place in places.items())
        self.store.set_vectors((*places[key], number, key) for number, key in self.passages)
        self.passages, self.known = [], set()

    def _write_segment(self) -> None:
        if self.keys:
            segment = write_segment(self.store.folder, self.matrices, self.dtype)
            self.segments.append((segment, self.keys))
            self.keys, self.matrices = [], []

    def _record(self) -> dict[Any, tuple[int, int]]:
        """Record all segments in the database: key → segment and row of the vector."""
        self._write_segment()
        places: dict[Any, tuple[int, int]] = {}
        for segment, keys in self.segments:
            number = self.store.add_segment(segment)
            places |= {key: (number, row) for row, key in enumerate(keys)}
        self.segments = []
        return places

    def repair(self) -> list[str]:
        """Remove damaged segments from the database; the names of those that were rebuilt."""
        sweep_segments(self.store)
        damaged = []
        for segment in self.store.segments():
            try:
                open_segment(self.store.folder, segment, verify=True)
            except DamagedSegmentError:
                damaged.append(segment)
        if damaged:
            with self.store.transaction():
                for segment in damaged:
                    self.store.remove_segment(segment.id)
                # A new file of the same content takes the place of the damaged one.
                self.fill()
        return [segment.name for segment in damaged]

    def fill(self) -> None:
        """Embed every passage that has no vector, within a transaction."""
        if self.encoder is None or self.store.count() == self.store.count("vectors"):
            return
        missing = "FROM passages WHERE id NOT IN (SELECT passage FROM vectors) AND id > ?"
        execute, last = self.store.database.execute, 0
        self.begin(execute(f"SELECT sum(length(text)) {missing}", (0,)).fetchone()[0])
        sql = f"SELECT id, key, title, heading, text {missing} ORDER BY id LIMIT ?"
        while rows := execute(sql, (last, self.batch)).fetchall():
            last = rows[-1][0]
            for number, key, *texts in rows:
                self.read += len(texts[-1])
                self.add(number, key, joined_text(*texts))
        self.flush()

    def merge(self) -> None:
        """Merge small segments and segments with few rows in use."""
        execute = self.store.database.execute
        used = dict(execute("SELECT segment, count(DISTINCT row) FROM vectors GROUP BY segment"))
        pending = {segment for (segment,) in execute("SELECT segment FROM pending")}
        segments = [segment for segment in self.store.segments() if segment.id not in pending]
        chosen = [segment for segment in segments if 2 * used.get(segment.id, 0) < segment.rows]
        small = [part for part in segments if part not in chosen and part.rows < SEGMENT_ROWS]
        if len(small) > MOST_SEGMENTS:
            chosen += small
        if not chosen:
            return
        with self.store.transaction():
            passages = [row for segment in chosen for row in self._copy(segment)]
            places = self._record()
            self.store.set_vectors((*places[old], *passage) for old, passage in passages)
            for segment in chosen:
                self.store.remove_segment(segment.id)

    def _copy(self, segment: Segment) -> list[tuple[tuple[int, int], tuple[int, bytes]]]:
        """Copy the rows in use to the segment that is being filled: (place, passage with key)."""
        sql = "SELECT v.row, p.id, p.key FROM vectors v JOIN passages p ON p.id = v.passage"
        sql += " WHERE v.segment = ? ORDER BY v.row"
        rows = self.store.database.execute(sql, (segment.id,)).fetchall()
        if not rows:
            return []
        used = list(dict.fromkeys(row for row, *_ in rows))
        matrix = open_segment(self.store.folder, segment, verify=True)
        self.matrices.append(matrix[used])
        self.keys += [(segment.id, row) for row in used]
        if len(self.keys) * segment.dimension * matrix.itemsize >= MERGED_BYTES:
            self._write_segment()
        return [((segment.id, row), (number, key)) for row, number, key in rows]
