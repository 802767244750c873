"""`Index`: open, search, add, remove, update."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.ledger import Ledger
from bertsmith.numbers import real_number, whole_number
from bertsmith.search import build
from bertsmith.search.database import DamagedIndexError, current
from bertsmith.search.encoder import TextEncoder, Vectors
from bertsmith.search.filters import condition
from bertsmith.search.fuse import Ranking, fuse
from bertsmith.search.hits import Hit, best_of_documents, distinct, hit_of
from bertsmith.search.keywords import KeywordSearch, Query, parse
from bertsmith.search.queries import IndexModel
from bertsmith.search.segments import DamagedSegmentError, open_segment
from bertsmith.search.store import Store, StoredPassage
from bertsmith.search.update import IndexUpdate, Report, silent
from bertsmith.search.vectors import VectorTable
from bertsmith.settings import picked, taking
from bertsmith.settings.search import IndexSettings, SearchSettings

if TYPE_CHECKING:
    from bertsmith.search.rerank import Reranker

MODES = ("hybrid", "keywords", "vectors")
WEIGHTS = (1.0, 1.0)  # weights of keywords and vectors in hybrid search
# Those of the package's own models, chosen on queries that are reported nowhere else.
OWN_WEIGHTS = {"bertsmith-embed": (1.0, 0.7), "bertsmith-small": (1.0, 0.2)}
FUSION = "min-max"
DEPTH = 1000  # passages of each ranking that are fused, at least
FIRST = 50  # passages that are read from the database at once
MOST = 10_000  # results of one search
BUSY_SECONDS = 0.5  # that a question about the state of the index waits for a running search


class Index:
    """An index of documents: a folder that `bertsmith index` wrote.

    Searches may run in several threads; updates by other processes are picked up.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        model: str | Path | TextEncoder | None = None,
        device: str | None = None,
        dtype: str | None = None,
    ) -> None:
        self.path = Path(path)
        self.ledger = Ledger()
        self._lock = threading.RLock()
        self._store = Store.open(self.path)
        self._keywords = KeywordSearch(self._store.database)
        self._table: VectorTable | None = None
        self._failure: tuple[Any, str] = (None, "")  # a state of the index, and what is wrong
        self._rerankers: dict[str | Path, Reranker] = {}
        self._model = IndexModel(self.path, model, device, dtype, self.ledger)
        if isinstance(model, TextEncoder):
            self._model.check(self._stamp(), model, model.name)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        model: str | Path | None = None,
        device: str | None = None,
        dtype: str | None = None,
    ) -> Index:
        """Open an index. Its model is loaded when it is first needed.

        `model` is the new path of the model if it was moved; another model is an error.
        """
        return cls(path, model=model, device=device, dtype=dtype)

    @classmethod
    @taking(IndexSettings)
    def create(
        cls,
        path: str | Path,
        *,
        model: str | Path | None = None,
        device: str | None = None,
        **given: Any,
    ) -> Index:
        """Create an empty index, to which documents are added; prompts default to the model's."""
        settings = build.BuildSettings(model=model, device=device, **given)
        build.add_documents(Path(path), [], settings)
        return cls.open(path, device=device)

    def reader(self) -> Index:
        """Return another handle of the index, with the same model: both search at the same time."""
        with self._latest():
            stamp = self._stamp()
            if stamp and self._model.embed_quickly(stamp, "") is None:
                self._model.load(stamp)  # once
        other = Index(self.path)
        other._model = self._model.shared()
        return other

    def __len__(self) -> int:
        with self._latest() as store:
            return store.count()

    def __repr__(self) -> str:
        return f"<index of {len(self):,} passages in {self.path}>"

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._store.close()

    @property
    def about(self) -> dict[str, Any]:
        """The stored settings of the index, and its size."""
        with self._latest() as store:
            meta = store.meta()
            counts = {name: store.count(name) for name in ("files", "passages")}
        known = ("model", "chunking", "dtype", "roots", "patterns", "generation")
        return {"path": str(self.path), **counts, **{key: meta.get(key) for key in known}}

    def kinds(self) -> list[str]:
        """The kinds of files that the index holds."""
        with self._latest() as store:
            rows = store.database.execute("SELECT DISTINCT kind FROM files ORDER BY kind")
            return [kind for (kind,) in rows]

    def check(self) -> None:
        """Verify all checksums, of the database and of the vectors; damage is an error."""
        with self._latest() as store:
            store.verify()
            for segment in store.segments():
                try:
                    open_segment(store.folder, segment, verify=True)
                except DamagedSegmentError as error:
                    raise self._explained(error) from error

    def problem(self) -> str | None:
        """Return why the index cannot be searched now; None if it can."""
        if not self._lock.acquire(timeout=BUSY_SECONDS):
            return None  # it is being searched
        try:
            with self._latest() as store:
                if stamp := self._stamp():
                    self._vectors()
                    self._model.load(stamp)
                state, reason = self._failure
                return reason if state == (store.folder, store.generation()) else None
        except BertsmithError as error:
            return self._explained(error).for_everyone()
        finally:
            self._lock.release()

    def add(self, documents: Iterable[str | Mapping[str, Any]]) -> IndexUpdate:
        """Add documents: {"id": ..., "text": ..., "title": ...}, or texts, which are their own ids.

        A document with an existing id replaces the old one.
        """
        if isinstance(documents, str | Mapping):
            raise BertsmithError("add takes a list of documents; update reads folders of files")
        return build.add_documents(self.path, documents, self._settings())

    def remove(self, names: str | Sequence[str]) -> IndexUpdate:
        """Remove documents by their ids, or files by their paths."""
        listed = [names] if isinstance(names, str) else list(names)
        return build.remove_documents(self.path, listed, self._settings())

    def update(
        self,
        folders: Sequence[str | Path] = (),
        report: Report = silent,
        *,
        exclude: list[str] | None = None,
        include: list[str] | None = None,
    ) -> IndexUpdate:
        """Update the index from folders; without arguments, from those it was built from.

        `exclude` and `include` are patterns as in .gitignore; the index keeps them for next time.
        """
        settings = replace(self._settings(), exclude=exclude, include=include)
        return build.update_folders(self.path, folders, settings, self.ledger, report)

    def move(self, old: str | Path, new: str | Path) -> IndexUpdate:
        """Record that a folder of the index was moved; the next update reads it there."""
        return build.move_folder(self.path, old, new)

    def drop(self, folder: str | Path) -> IndexUpdate:
        """Remove a folder from the index, with its files; they are not indexed again."""
        return build.drop_folder(self.path, folder)

    def _settings(self) -> build.BuildSettings:
        """Settings with the model that is already loaded."""
        with self._latest():
            stamp = self._stamp()
            return build.BuildSettings(encoder=self._model.load(stamp) if stamp else None)

    def _refresh(self) -> None:
        with self._lock:
            if current(self.path) != self._store.folder or self._store.outdated():
                store = Store.open(self.path)
                self._store.close()
                self._store, self._table = store, None
                self._keywords = KeywordSearch(store.database)
                self._model.follow(self._stamp())

    @contextmanager
    def _latest(self) -> Iterator[Store]:
        """Read the newest state of the index; within another such read, the state of that one."""
        with self._lock:
            if not self._store.database.in_transaction:
                self._refresh()
            with self._store.snapshot():
                yield self._store

    @taking(SearchSettings)
    def search(
        self,
        query: str,
        top: int = 10,
        *,
        mode: str = "hybrid",
        highlight: bool = True,
        **given: Any,
    ) -> list[Hit]:
        """The passages that match a query best, best first.

        `mode` is "hybrid" (keywords and vectors, fused with `weights`; by default equal ones,
        1 to 0.7 for vectors of bertsmith-embed, 1 to 0.2 for bertsmith-small), "keywords" or
        "vectors". `files` are patterns such as "*.md", `kinds` such as "pdf", `after` and `before`
        dates of the files ("2024-05-01"). `by_document` keeps the best passage of each document.
        `rerank` is the model that reorders the best `rerank_top` passages: a name, a directory,
        "index" (the model of the index) or a `Reranker`; further passages follow in their old order
        with their old scores. `highlight` marks the words that match.
        """
        settings = picked(SearchSettings, given, only=True)
        if not isinstance(query, str):
            raise BertsmithError(f"a query is a text, not a {type(query).__name__}")
        if mode not in MODES:
            raise BertsmithError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
        for weight in settings.weights or ():
            real_number(weight, "a weight", 0.0)
        top = whole_number(top, "top", 1, MOST)
        filters = condition(settings)
        parsed, reranker = parse(query), self.reranker(settings.rerank)
        if not parsed.text.strip():
            return []
        with self._lock:
            for attempt in range(3):
                self._refresh()
                try:
                    with self._store.snapshot():
                        completed = self._keywords.completed(parsed)
                        rankings = self._rankings(completed, mode, filters, max(DEPTH, 2 * top))
                        hits = self._hits(completed, mode, rankings, top, settings, reranker)
                        if not highlight:
                            return hits
                        spans = self._keywords.highlights([hit.text for hit in hits], completed)
                        pairs = zip(hits, spans, strict=True)
                        return [replace(hit, highlights=tuple(own)) for hit, own in pairs]
                except BertsmithError as error:
                    # The index may have changed in the meantime: retry with the newer state.
                    if attempt == 2 or not self._superseded(error):
                        raise self._explained(error) from error
        raise AssertionError

    def reranker(self, model: Any) -> Reranker | None:
        """Return the reranker that `search` uses for `rerank`; a model is loaded once."""
        if model is None or hasattr(model, "rerank"):
            return model
        from bertsmith.search.rerank import Reranker

        with self._lock:
            if model == "index":
                stamp = self._stamp()
                if not stamp:
                    raise BertsmithError(f"{self.path}: was built without a model to rerank with")
                return Reranker(self._model.load(stamp).model)
            if not isinstance(model, str | Path):
                return Reranker(model, self._model.device)
            if model not in self._rerankers:
                self._rerankers[model] = Reranker(model, self._model.device)
            return self._rerankers[model]

    def _superseded(self, error: BertsmithError) -> bool:
        """Whether an error concerns a state of the index that another process has replaced."""
        if current(self.path) != self._store.folder or self._store.outdated():
            return True
        if not isinstance(error, DamagedSegmentError):
            return False
        return all(other.name != error.segment.name for other in self._store.segments())

    def _explained(self, error: BertsmithError) -> BertsmithError:
        """Remember damage; an error about vectors, which can be computed again, says how."""
        if isinstance(error, DamagedIndexError):
            with suppress(sqlite3.Error):
                state = self._store.folder, self._store.generation()
                self._failure = state, error.for_everyone()
        if not isinstance(error, DamagedSegmentError):
            return error
        update = setting_name("Index.update()", option=f"bertsmith index --out {self.path}")
        keywords = setting_name("mode", "keywords", "search --keywords")
        advice = f"{update} rebuilds it from the text, and {keywords} needs no vectors"
        return BertsmithError(f"{error.message}; {advice}")

    def _rankings(
        self, query: Query, mode: str, filters: tuple[str, list[Any]], depth: int
    ) -> tuple[Ranking, Ranking]:
        """The passages that match a query by keywords, and by vectors; empty if not of the mode."""
        allowed = self._keywords.allowed(query, *filters)
        words: Ranking = []
        near: Ranking = []
        if mode != "vectors":
            words = self._keywords.ranking(query, depth, allowed)
        stamp = self._stamp()
        if mode == "vectors" or (mode == "hybrid" and stamp):
            if len(table := self._vectors()):
                near = table.nearest(self._model.embed(stamp, query.text), depth, allowed)
        return words, near

    def _hits(
        self,
        query: Query,
        mode: str,
        rankings: tuple[Ranking, Ranking],
        top: int,
        settings: SearchSettings,
        reranker: Reranker | None,
    ) -> list[Hit]:
        words, near = rankings
        ranking = words or near
        if mode == "hybrid" and self._stamp():
            ranking = fuse(words, near, settings.weights or self.weights, settings.fusion)
        scores, depth = (dict(words), dict(near)), settings.rerank_top
        step = max(FIRST, top, depth if reranker is not None else 0)
        hits: list[Hit] = []
        while ranking and len(hits) < top:
            first, ranking = ranking[:step], ranking[step:]
            pairs = zip(self._store.passages([number for number, _ in first]), first, strict=True)
            next_hits = [hit_of(passage, score, scores) for passage, (_, score) in pairs]
            if not settings.by_document:  # copies of a document are documents
                next_hits = distinct(next_hits)
            if reranker is not None and not hits:
                best = reranker.rerank(query.text, next_hits[:depth])
                next_hits = [*best, *next_hits[depth:]]
            hits = (best_of_documents if settings.by_document else distinct)([*hits, *next_hits])
        return hits[:top]

    def embed(self, query: str) -> Vectors:
        """Return the unit vector (D,) of a query, computed with the model of the index."""
        with self._latest():
            return self._model.embed(self._stamp(), query)

    def _vectors(self) -> VectorTable:
        if not self._stamp():
            keywords = setting_name("mode", "keywords", "--keywords")
            advice = f"search it with {keywords}, or build it again with a model"
            raise BertsmithError(f"{self.path}: was built without vectors; {advice}")
        if self._table is None or self._table.generation != self._store.generation():
            self._table = VectorTable(self._store)
        return self._table

    def rankings(self, query: str) -> tuple[Ranking, Ranking]:
        """Return the rankings that hybrid search fuses, by keywords and (if any) by vectors."""
        with self._latest():
            completed = self._keywords.completed(parse(query))
            return self._rankings(completed, "hybrid", ("", []), DEPTH)

    def passages(self, ids: Sequence[int]) -> list[StoredPassage]:
        """Passages by their ids, in this order."""
        with self._latest() as store:
            return store.passages(ids)

    def around(self, passage: int, before: int = 0, after: int = 0) -> list[StoredPassage]:
        """A passage with those before and after it in its file or record, in order."""
        with self._latest() as store:
            ids = store.neighbours(passage)
            if passage not in ids:
                raise BertsmithError(f"{self.path} has no passage {passage}: search again")
            place = ids.index(passage)
            return store.passages(ids[max(0, place - before) : place + after + 1])

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return unit vectors (N, D) of texts, as the index embeds passages; (N, 0) without one."""
        with self._latest():
            stamp = self._stamp()
            if not stamp:
                return np.zeros((len(texts), 0), np.float32)
            return self._model.load(stamp).embed(texts)

    def places(self) -> dict[int, tuple[str, str]]:
        """The document and the file of every passage, by its id."""
        sql = "SELECT p.id, p.document, f.path FROM passages p JOIN files f ON f.id = p.file"
        with self._latest() as store:
            return {number: (name, file) for number, name, file in store.database.execute(sql)}

    def portions(self, size: int = 1024) -> Iterator[tuple[list[StoredPassage], Any]]:
        """Yield all passages that have vectors, with the vectors (N, D), ordered by id."""
        with self._latest() as store:
            try:
                table = self._vectors()
            except DamagedSegmentError as error:
                raise self._explained(error) from error
            order = np.argsort(table.ids)
            for start in range(0, len(order), size):
                rows = order[start : start + size]
                yield store.passages(table.ids[rows].tolist()), table.rows(rows)

    @property
    def weights(self) -> tuple[float, float]:
        """The default weights of keywords and vectors in hybrid search: learned, or the model's."""
        with self._latest() as store:
            stamp, learned = self._stamp(), store.meta().get("weights")
        if stamp and learned and learned["model"] == stamp["hash"]:
            return learned["keywords"], learned["vectors"]
        return OWN_WEIGHTS.get(stamp.get("name", ""), WEIGHTS)

    def keep_weights(self, weights: tuple[float, float]) -> None:
        """Store the default weights of hybrid search, for as long as the model is the same."""
        with self._latest():
            stamp = self._stamp()
        if not stamp:
            raise BertsmithError(f"{self.path}: has no vectors, and needs no weights")
        keywords, vectors = weights
        learned = {"model": stamp["hash"], "keywords": keywords, "vectors": vectors}
        with build.stored_settings(self.path) as store:
            store.set_meta(weights=learned)

    def _stamp(self) -> dict[str, Any]:
        """The description of the model that embedded the index; empty without vectors."""
        return self._store.meta().get("model") or {}

    @property
    def encoder(self) -> TextEncoder:
        """The model of the index."""
        with self._latest():
            return self._model.load(self._stamp())
