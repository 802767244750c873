"""Vector search: exact matrix multiplication, or an HNSW graph."""

from typing import Any

import numpy as np

from bertsmith.errors import BertsmithError
from bertsmith.files import atomic, digest, write_json
from bertsmith.foreign import read_json
from bertsmith.search.database import DATABASE, damaged
from bertsmith.search.fuse import Ids, Ranking
from bertsmith.search.segments import DamagedSegmentError, Matrix, open_segment, unit_vectors
from bertsmith.search.store import Store

BLOCK_BYTES = 32 << 20  # of float32 vectors that are multiplied at once
GRAPH_FROM = 1_000_000  # passages from which an HNSW graph is used, if faiss is installed
LARGEST_COSINE = 1.01  # of unit vectors, in half precision; larger ones show damage
NEIGHBOURS, BREADTH = 32, 128  # of a node of the graph; how many are looked at


class VectorTable:
    """All vectors of an index at one state, and the passages that they belong to."""

    def __init__(self, store: Store) -> None:
        self.generation, self.folder = store.generation(), store.folder
        self.segments = store.segments()
        self.blocks: list[tuple[Matrix, Ids, Ids]] = []  # vectors, rows in use, their passages
        rows = store.database.execute("SELECT segment, row, passage FROM vectors").fetchall()
        try:
            table = np.array(rows, dtype=np.int64).reshape(-1, 3)
        except (TypeError, ValueError, OverflowError) as error:
            raise damaged(store.folder / DATABASE, f"the rows of vectors: {error}") from error
        table = table[np.lexsort((table[:, 1], table[:, 0]))]
        for segment in self.segments:
            low, high = np.searchsorted(table[:, 0], [segment.id, segment.id + 1])
            if low == high:
                continue
            _, own_rows, passages = table[low:high].T
            matrix = open_segment(store.folder, segment)
            if own_rows[0] < 0 or own_rows[-1] >= len(matrix):
                raise DamagedSegmentError(segment, f"{store.folder / segment.name}: is too short")
            self.blocks.append((matrix, own_rows, passages))
        self.ids: Ids = np.concatenate([np.zeros(0, np.int64), *(ids for *_, ids in self.blocks)])
        self._graph: Any = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dimension(self) -> int:
        """The width of the vectors."""
        return int(self.blocks[0][0].shape[1]) if self.blocks else 0

    def scores(self, query: Matrix) -> Matrix:
        """The cosine of a query with every passage, in the order of `ids`."""
        scores = [np.zeros(0, np.float32)]
        for matrix, rows, _ in self.blocks:
            cosines = np.empty(len(matrix), np.float32)
            step = max(1, BLOCK_BYTES // (4 * matrix.shape[1]))
            for start in range(0, len(matrix), step):
                cosines[start : start + step] = unit_vectors(matrix[start : start + step]) @ query
            scores.append(cosines[rows])
        return np.concatenate(scores)

    def rows(self, places: Ids) -> Matrix:
        """Return the vectors at some positions of `ids`, as float32 (N, D)."""
        vectors = np.empty((len(places), self.dimension), np.float32)
        start = 0
        for matrix, rows, ids in self.blocks:
            inside = np.flatnonzero((places >= start) & (places < start + len(ids)))
            vectors[inside] = unit_vectors(matrix[rows[places[inside] - start]])
            start += len(ids)
        return vectors

    def nearest(self, query: Matrix, top: int, allowed: Ids | None = None) -> Ranking:
        """The passages nearest to a query with their cosines; ties by the smaller id."""
        if not len(self.ids) or (allowed is not None and not len(allowed)):
            return []
        if allowed is None and len(self.ids) >= GRAPH_FROM:
            if (near := self._from_graph(query, top)) is not None:
                return near
        scores, ids = self.scores(query), self.ids
        if not np.all(np.abs(scores) <= LARGEST_COSINE):  # NaN too
            for segment in self.segments:
                open_segment(self.folder, segment, verify=True)
        if allowed is not None:
            chosen = np.isin(ids, allowed)
            scores, ids = scores[chosen], ids[chosen]
        kept = np.arange(len(ids))
        if top < len(ids):
            kept = np.flatnonzero(scores >= np.partition(scores, -top)[-top])
        order = kept[np.lexsort((ids[kept], -scores[kept]))][:top]
        return list(zip(ids[order].tolist(), scores[order].tolist(), strict=True))

    def _from_graph(self, query: Matrix, top: int) -> Ranking | None:
        """Return the nearest passages by the graph; None if faiss is not installed."""
        try:
            import faiss
        except ImportError:
            return None
        if self._graph is None:
            self._graph = self._stored_graph(faiss) or self._new_graph(faiss)
        scores, rows = self._graph.search(query[None], top)
        pairs = zip(rows[0].tolist(), scores[0].tolist(), strict=True)
        return [(int(self.ids[row]), score) for row, score in pairs if row >= 0]

    def _stored_graph(self, faiss: Any) -> Any:
        path = self.folder / "neighbours.faiss"
        try:
            about = read_json(path.with_suffix(".faiss.sum"), limit=1 << 16)
            if about.get("generation") != self.generation or about.get("sum") != digest(path):
                return None
        except (BertsmithError, OSError):
            return None
        graph = faiss.read_index(str(path))
        return graph if graph.ntotal == len(self.ids) else None

    def _new_graph(self, faiss: Any) -> Any:
        graph = faiss.IndexHNSWFlat(self.dimension, NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efSearch = BREADTH
        for matrix, rows, _ in self.blocks:
            step = max(1, BLOCK_BYTES // (4 * matrix.shape[1]))
            for start in range(0, len(rows), step):
                graph.add(unit_vectors(matrix[rows[start : start + step]]))
        path = self.folder / "neighbours.faiss"
        try:
            with atomic(path) as stream:
                stream.write(faiss.serialize_index(graph))
            about = {"generation": self.generation, "sum": digest(path)}
            write_json(path.with_suffix(".faiss.sum"), about)
        except BertsmithError:  # the folder is read-only: the graph is built again next time
            pass
        return graph
