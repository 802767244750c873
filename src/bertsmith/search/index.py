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

from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.numbers import real_number, whole_number
from bertsmith.search.build import (
    Settings,
    add_documents,
    another_model,
    drop_folder,
    move_folder,
    remove_documents,
    store_weights,
    update_folders,
)
from bertsmith.search.database import DamagedIndexError, current
from bertsmith.search.encoder import DEFAULT_MODEL, Encoder, encoder_of
from bertsmith.search.filters import Filters
from bertsmith.search.fuse import SCALES, Ranking, fuse
from bertsmith.search.hits import Hit, best_of_documents, distinct, hit_of
from bertsmith.search.keywords import (
    MOST_COMPLETIONS,
    TITLE_WEIGHT,
    Analyzer,
    Query,
    counted,
    expression,
    marked,
    parse,
    quoted,
    without_accents,
)
from bertsmith.search.segments import DamagedSegmentError, open_segment
from bertsmith.search.store import Store, Stored
from bertsmith.search.update import Report, Update, silent
from bertsmith.search.vectors import GRAPH_FROM, VectorTable
from bertsmith.settings import taking
from bertsmith.settings.search import IndexSettings, SearchSettings

if TYPE_CHECKING:
    from bertsmith.search.encoder import Vectors
    from bertsmith.search.queries import QueryEncoder
    from bertsmith.search.rerank import Reranker

MODES = ("hybrid", "keywords", "vectors")
WEIGHTS = (1.0, 1.0)  # weights of keywords and vectors in hybrid search
# Those of the package's own models, chosen on queries that are reported nowhere else.
OWN_WEIGHTS = {"bertsmith-embed": (1.0, 0.5), "bertsmith-small": (1.0, 0.2)}
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
        model: str | Path | Encoder | None = None,
        device: str | None = None,
        dtype: str | None = None,
        graph_from: int = GRAPH_FROM,
    ) -> None:
        self.path = Path(path)
        self.ledger = Ledger()
        self._lock = threading.RLock()
        self._embedding = threading.Lock()  # readers share the model
        self._device, self._dtype, self._graph_from = device, dtype, graph_from
        self._store = Store.open(self.path)
        self._folder = self._store.folder
        self._failure: tuple[Any, str] = (None, "")  # a state of the index, and what is wrong
        self._table: VectorTable | None = None
        self._analyzer = Analyzer()
        self._queries: QueryEncoder | None = None
        self._rerankers: dict[str | Path, Reranker] = {}
        self._encoder = model if isinstance(model, Encoder) else None
        self._model = None if isinstance(model, Encoder) else model
        if self._encoder is not None:
            self._check(self._encoder.hash, self._encoder.name)

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
        add_documents(Path(path), [], Settings(model=model, device=device, **given))
        return cls.open(path, device=device)

    def reader(self) -> Index:
        """Return another handle of the index, with the same model: both search at the same time."""
        with self._latest():
            quick = self._quickly_embedded("") is not None
            shared = None if quick or self._meta_model() is None else self._model_of_index()
        other = Index(
            self.path,
            model=shared or self._model,
            device=self._device,
            dtype=self._dtype,
            graph_from=self._graph_from,
        )
        other._embedding = self._embedding
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
                if self._meta_model() is not None:
                    self._vectors()
                    self._model_of_index()
                state, reason = self._failure
                return reason if state == (store.folder, store.generation()) else None
        except BertsmithError as error:
            return str(self._explained(error))
        finally:
            self._lock.release()

    # -------------------------------------------------------------- changes

    def add(self, documents: Iterable[str | Mapping[str, Any]]) -> Update:
        """Add documents: {"id": ..., "text": ..., "title": ...}, or texts, which are their own ids.

        A document with an existing id replaces the old one.
        """
        if isinstance(documents, str | Mapping):
            raise BertsmithError("add takes a list of documents; update reads folders of files")
        return self._changed(add_documents(self.path, documents, self._settings()))

    def remove(self, names: str | Sequence[str]) -> Update:
        """Remove documents by their ids, or files by their paths."""
        listed = [names] if isinstance(names, str) else list(names)
        return self._changed(remove_documents(self.path, listed, self._settings()))

    def update(
        self,
        folders: Sequence[str | Path] = (),
        report: Report = silent,
        *,
        exclude: list[str] | None = None,
        include: list[str] | None = None,
    ) -> Update:
        """Update the index from folders; without arguments, from those it was built from.

        `exclude` and `include` are patterns as in .gitignore; the index keeps them for next time.
        """
        settings = replace(self._settings(), exclude=exclude, include=include)
        return self._changed(update_folders(self.path, folders, settings, self.ledger, report))

    def move(self, old: str | Path, new: str | Path) -> Update:
        """Record that a folder of the index was moved; the next update reads it there."""
        return self._changed(move_folder(self.path, old, new))

    def drop(self, folder: str | Path) -> Update:
        """Remove a folder from the index, with its files; they are not indexed again."""
        return self._changed(drop_folder(self.path, folder))

    def _settings(self) -> Settings:
        """Settings with the model that is already loaded."""
        with self._latest():
            encoder = self._model_of_index() if self._meta_model() is not None else None
        return Settings(encoder=encoder)

    def _changed(self, update: Update) -> Update:
        self._refresh()
        return update

    def _refresh(self) -> None:
        """Switch to the newest state of the index."""
        with self._lock:
            if current(self.path) != self._folder or self._store.outdated():
                store = Store.open(self.path)
                self._store.close()
                self._store, self._folder, self._table = store, store.folder, None
                former, stamp = self._encoder, self._meta_model() or {}
                own = (stamp.get("hash"), stamp.get("long", "window"), stamp.get("width"))
                if former is not None and (former.hash, former.long, former.width) != own:
                    self._encoder = None

    @contextmanager
    def _latest(self) -> Iterator[Store]:
        """Read the newest state of the index, as of one moment."""
        with self._lock:
            self._refresh()
            with self._store.snapshot():
                yield self._store

    # -------------------------------------------------------------- search

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
        1 to 0.5 for vectors of bertsmith-embed, 1 to 0.2 for bertsmith-small), "keywords" or
        "vectors".
        `files` are patterns such as "*.md", `kinds` such as "pdf", `after` and `before` dates of
        the files ("2024-05-01"). `by_document` keeps the best passage of each document. `rerank`
        is the model that reorders the best `rerank_top` passages: a name, a directory, "index" (the
        model of the index) or a `Reranker`; further passages follow in their old order with their
        old scores. `highlight` marks the words that match.
        """
        wanted = SearchSettings(**given)
        weights, fusion = wanted.weights or self.weights, wanted.fusion
        asked = self._asked(query, mode, weights, fusion)
        top = whole_number(top, "top", 1, MOST)
        filters = Filters.of(wanted.files, wanted.kinds, wanted.after, wanted.before)
        if asked.blank:
            return []
        options = (mode, weights, fusion, filters, max(DEPTH, 2 * top))
        depth = whole_number(wanted.rerank_top, "rerank_top", 1, MOST)
        reranker = (self.reranker(wanted.rerank), depth)
        with self._lock:
            for attempt in range(3):
                self._refresh()
                try:
                    with self._store.snapshot():
                        hits = self._search(asked, top, options, wanted.by_document, reranker)
                        return self._highlighted(hits, asked) if highlight else hits
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
                if self._meta_model() is None:
                    raise BertsmithError(f"{self.path}: was built without a model to rerank with")
                return Reranker(self._model_of_index().model)
            if not isinstance(model, str | Path):
                return Reranker(model, self._device)
            if model not in self._rerankers:
                self._rerankers[model] = Reranker(model, self._device)
            return self._rerankers[model]

    def _superseded(self, error: BertsmithError) -> bool:
        """Whether an error concerns a state of the index that another process has replaced."""
        if current(self.path) != self._folder or self._store.outdated():
            return True
        if not isinstance(error, DamagedSegmentError):
            return False
        return all(one.name != error.segment.name for one in self._store.segments())

    def _explained(self, error: BertsmithError) -> BertsmithError:
        """Remember damage; add the way out to an error about vectors, which are computed again."""
        if isinstance(error, DamagedIndexError):
            with suppress(sqlite3.Error):
                self._failure = (self._folder, self._store.generation()), str(error)
        if not isinstance(error, DamagedSegmentError):
            return error
        return BertsmithError(
            f"{error}; bertsmith index --out {self.path} rebuilds it from the text, and"
            " search --keywords needs no vectors"
        )

    def _search(
        self, query: Query, top: int, options: tuple[Any, ...], by_document: bool, reranker: Any
    ) -> list[Hit]:
        rerank, deep = reranker
        query = self._completed(query)
        ranking, scores = self._ranked(query, *options)
        hits: list[Hit] = []
        while ranking and len(hits) < top:
            step = max(FIRST, top, deep if rerank is not None else 0)
            part, ranking = ranking[:step], ranking[step:]
            passages = self._store.passages([number for number, _ in part])
            pairs = zip(passages, part, strict=True)
            more = [hit_of(passage, score, scores) for passage, (_, score) in pairs]
            if not by_document:  # copies of a document are documents
                more = distinct(more)
            if rerank is not None and not hits:
                more = [*rerank.rerank(query.text, more[:deep]), *more[deep:]]
            hits = (best_of_documents if by_document else distinct)([*hits, *more])
        return hits[:top]

    def _highlighted(self, hits: list[Hit], query: Query) -> list[Hit]:
        query = self._completed(query)
        clauses = marked(query, self._frequencies(query.words), self._store.count())
        marks = [tuple(self._analyzer.highlights(hit.text, query, clauses)) for hit in hits]
        return [replace(hit, highlights=m) for hit, m in zip(hits, marks, strict=True)]

    def _asked(self, query: str, mode: str, weights: tuple[float, float], fusion: str) -> Query:
        if not isinstance(query, str):
            raise BertsmithError(f"a query is a text, not a {type(query).__name__}")
        if mode not in MODES:
            raise BertsmithError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
        if fusion not in SCALES:
            raise BertsmithError(f"unknown fusion {fusion!r}; known: {', '.join(SCALES)}")
        for weight in weights:
            real_number(weight, "a weight", 0.0)
        return parse(query)

    def _completed(self, query: Query) -> Query:
        """The query with words for its prefixes, where FTS5's own prefix search is wrong.

        FTS5 stems the prefix too: it looks for gas* as ga*, which garden begins with, and for lady*
        as ladi*, which ladybird does not begin with. Such a prefix is replaced by words. To others
        the words are added whose stem is shorter than the prefix.
        """
        kept, added = [], []
        prefixes = [without_accents(prefix) for prefix in query.prefixes]
        for prefix, parts in zip(prefixes, self._analyzer.stems(prefixes), strict=True):
            named = self._stemmed(self._store.completions(prefix))
            if parts == [prefix]:
                kept.append(prefix)
                named = {stem: word for stem, word in named.items() if not stem.startswith(prefix)}
            added += self._most_frequent(list(named.values()))
        return replace(query, prefixes=tuple(kept), completions=tuple(added))

    def _stemmed(self, words: list[str]) -> dict[str, str]:
        """A word for each stem."""
        return {
            parts[0]: word
            for word, parts in zip(words, self._analyzer.stems(words), strict=True)
            if parts
        }

    def _most_frequent(self, words: list[str]) -> list[str]:
        """The words that most passages contain, if there are many."""
        if len(words) <= MOST_COMPLETIONS:
            return words
        frequency = self._frequencies(words)
        return sorted(words, key=lambda word: -frequency[quoted(word)])[:MOST_COMPLETIONS]

    def _ranked(
        self,
        query: Query,
        mode: str,
        weights: tuple[float, float],
        fusion: str,
        filters: Filters,
        depth: int,
    ) -> tuple[list[tuple[int, float]], tuple[dict[int, float], dict[int, float]]]:
        """Passages by score, and the scores of each method."""
        allowed = self._allowed(query, filters)
        words: list[tuple[int, float]] = []
        near: list[tuple[int, float]] = []
        if self._meta_model() is None and mode == "hybrid":
            mode = "keywords"  # an index without vectors
        if mode != "vectors":
            words = self._by_keywords(query, depth, allowed)
        if mode != "keywords":
            near = self._by_vectors(query, depth, allowed)
        ranking = fuse(words, near, weights, fusion) if mode == "hybrid" else words or near
        return ranking, (dict(words), dict(near))

    def _allowed(self, query: Query, filters: Filters) -> Any:
        """Return the sorted ids that filters and phrases allow; None for all."""
        where, values = filters.condition()
        if not where and not query.required:
            return None
        sql = "SELECT p.id FROM passages p"
        if where:
            sql += f" JOIN files f ON f.id = p.file WHERE {where}"
        if query.required:
            sql += (" AND" if where else " WHERE") + (
                " p.id IN (SELECT rowid FROM words WHERE words MATCH ?)"
            )
            values = [*values, query.required]
        rows = self._store.database.execute(sql, values).fetchall()
        return np.sort(np.array([row[0] for row in rows], dtype=np.int64))

    def _by_keywords(self, query: Query, depth: int, allowed: Any) -> list[tuple[int, float]]:
        clauses = counted(query, self._frequencies(query.words), self._store.count())
        if not clauses or (allowed is not None and not len(allowed)):
            return []
        asked = expression(query, clauses)
        limit = depth if allowed is None else -1
        rows = self._store.database.execute(
            f"SELECT rowid, bm25(words, {TITLE_WEIGHT}, 1.0) AS score FROM words"
            " WHERE words MATCH ? ORDER BY score, rowid LIMIT ?",
            (asked, limit),
        )
        if allowed is None:
            return [(number, -score) for number, score in rows]
        permitted = set(allowed.tolist())
        ranking = [(number, -score) for number, score in rows if number in permitted]
        return ranking[:depth]

    def _frequencies(self, words: list[str]) -> dict[str, int]:
        """Return the number of passages that contain each word, by the word in quotes."""
        stems = self._analyzer.stems(words)
        frequency = {}
        for word, parts in zip(words, stems, strict=True):
            counts = [
                self._store.database.execute(
                    "SELECT doc FROM frequency WHERE term = ?", (stem,)
                ).fetchone()
                for stem in parts
            ]
            frequency[quoted(word)] = min((row[0] if row else 0 for row in counts), default=0)
        return frequency

    def _by_vectors(self, query: Query, depth: int, allowed: Any) -> list[tuple[int, float]]:
        table = self._vectors()
        if not len(table):
            return []
        return table.nearest(self.embed(query.text), depth, allowed)

    def embed(self, query: str) -> Vectors:
        """Return the unit vector (D,) of a query, computed with the model of the index."""
        with self._lock:
            quick = self._quickly_embedded(query) if self._encoder is None else None
            if quick is not None:
                return quick
            with self._embedding:
                return self._model_of_index().embed_query(query)

    def _quickly_embedded(self, query: str) -> Vectors | None:
        """Embed a query with the default model in NumPy, unless another one was asked for."""
        stamp = self._meta_model() or {}
        if (
            stamp.get("width")
            or stamp.get("name") != DEFAULT_MODEL
            or self._model
            or self._device not in (None, "cpu")
        ):
            return None
        if self._queries is None:
            from bertsmith.search.queries import QueryEncoder

            self._queries = QueryEncoder()
        if self._queries.hash != stamp["hash"] or self._dtype not in (None, "float32"):
            return None
        return self._queries.embed((stamp.get("query_prompt") or "") + query)

    def _vectors(self) -> VectorTable:
        """Return the vectors of the current state."""
        if self._meta_model() is None:
            raise BertsmithError(
                f"{self.path}: was built without vectors; search it with --keywords, or build it"
                " again with a model"
            )
        if self._table is None or self._table.generation != self._store.generation():
            self._table = VectorTable(self._store, self._graph_from)
        return self._table

    def rankings(self, query: str) -> tuple[Ranking, Ranking]:
        """The passages that match a query by keywords, and by vectors: what hybrid search fuses.

        An index without vectors has an empty second ranking.
        """
        with self._latest():
            asked = self._completed(parse(query))
            allowed = self._allowed(asked, Filters.of((), (), None, None))
            words = self._by_keywords(asked, DEPTH, allowed)
            near = self._by_vectors(asked, DEPTH, allowed) if self._meta_model() else []
            return words, near

    def passages(self, ids: Sequence[int]) -> list[Stored]:
        """Passages by their ids, in this order."""
        with self._latest() as store:
            return store.passages(ids)

    def around(self, passage: int, before: int = 0, after: int = 0) -> list[Stored]:
        """A passage with those before and after it in its file or record, in order."""
        with self._latest() as store:
            ids = store.neighbours(passage)
            if passage not in ids:
                raise BertsmithError(f"{self.path} has no passage {passage}: search again")
            place = ids.index(passage)
            return store.passages(ids[max(0, place - before) : place + after + 1])

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return unit vectors (N, D) of texts, as the index embeds passages; (N, 0) without one."""
        with self._lock:
            if self._meta_model() is None:
                return np.zeros((len(texts), 0), np.float32)
            return self._model_of_index().embed(texts)

    def places(self) -> dict[int, tuple[str, str]]:
        """The document and the file of every passage, by its id."""
        sql = "SELECT p.id, p.document, f.path FROM passages p JOIN files f ON f.id = p.file"
        with self._latest() as store:
            return {number: (name, file) for number, name, file in store.database.execute(sql)}

    def portions(self, size: int = 1024) -> Iterator[tuple[list[Stored], Any]]:
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

    # -------------------------------------------------------------- the model

    @property
    def weights(self) -> tuple[float, float]:
        """The default weights of keywords and vectors in hybrid search: learned, or the model's."""
        with self._latest() as store:
            stamp, learned = self._meta_model(), store.meta().get("weights")
        if stamp and learned and learned["model"] == stamp["hash"]:
            return learned["keywords"], learned["vectors"]
        return OWN_WEIGHTS.get(stamp["name"], WEIGHTS) if stamp else WEIGHTS

    def keep_weights(self, weights: tuple[float, float]) -> None:
        """Store the default weights of hybrid search, for as long as the model is the same."""
        with self._latest():
            stamp = self._meta_model()
        if stamp is None:
            raise BertsmithError(f"{self.path}: has no vectors, and needs no weights")
        keywords, vectors = weights
        store_weights(self.path, {"model": stamp["hash"], "keywords": keywords, "vectors": vectors})

    def _meta_model(self) -> dict[str, Any] | None:
        model: dict[str, Any] | None = self._store.meta().get("model")
        return model

    @property
    def encoder(self) -> Encoder:
        """The model of the index."""
        with self._latest():
            return self._model_of_index()

    def _model_of_index(self) -> Encoder:
        if self._encoder is None:
            stamp = self._meta_model() or {}
            name = str(self._model or stamp.get("name"))
            try:
                encoder = encoder_of(stamp, name, self._device, self._dtype)
                self._check(encoder.hash, name)
            except BertsmithError as error:
                if "another model" in str(error):
                    raise
                raise BertsmithError(
                    f"{self.path}: its model cannot be opened ({error}); say where it is with"
                    " --model, or search with --keywords"
                ) from error
            encoder.ledger = self.ledger
            self._encoder = encoder
        return self._encoder

    def _check(self, other: str, name: str) -> None:
        stamp = self._meta_model()
        if stamp is not None and stamp["hash"] != other:
            raise another_model(self.path, stamp, name)
