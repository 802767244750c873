"""`adapt`: the model of an index, trained on its documents without labels, if the search gains."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.data.tables import Where
from bertsmith.errors import BertsmithError
from bertsmith.examples.draw import shuffled
from bertsmith.finetuning.defaults import chosen_settings
from bertsmith.finetuning.plan import Plan
from bertsmith.finetuning.run import carry_out
from bertsmith.finetuning.setup import open_fresh
from bertsmith.folders import check_replaceable, replace_directory
from bertsmith.infer.loaded import LoadedModel, pick_device
from bertsmith.search.build import Settings, add_documents, re_embed
from bertsmith.search.encoder import Encoder
from bertsmith.search.evaluate import Judgements, SearchScores, compare, evaluate_search
from bertsmith.search.index import Index
from bertsmith.search.mining import Question, mine
from bertsmith.search.pairs import Pair, pairs_of
from bertsmith.search.store import Stored
from bertsmith.settings import picked, taking
from bertsmith.settings.search import AdaptationSettings
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.similarity.reading import Related
from bertsmith.tasks.similarity.task import TASK
from bertsmith.tasks.splits import Splits
from bertsmith.train.distributed import Ranks

MOST_PASSAGES = 50_000  # that pairs are made of
HELD, MOST_HELD = 0.2, 400  # documents that are held out: a fraction, and the most
FEWEST = 50  # pairs to train on, and documents that are held out
OTHERS = 1600  # passages beside the held-out ones, among which they are to be found
NEGATIVES = 1  # hard ones of each pair, beside the texts of the other pairs of a batch
CUT = 300  # characters of a text that are trained on: whole passages take several times as long
PASSES = 3.0  # time of a training step in forward passes
PROVING = 0.15  # of the time: embedding the held-out passages with one of the models
OVERHEAD = 0.4  # of the time: mining, and embedding the held-out passages again
TIMED = 32  # texts by which the speed of the model is measured
# More epochs, or a learning rate of 1e-4, lost on judged queries (all-MiniLM-L6-v2, Cranfield).
BATCH, MOST_EPOCHS = 32, 2
WIDTH, RATE = 384, 3e-5  # learning rate of a model of this width
Say = Callable[[str], None]


@dataclass(frozen=True)
class Proof:
    """What was found with the old and the new model: `method` → scores, and paired differences."""

    queries: int
    of: str  # "held-out pairs" or "judged queries"
    scores: dict[str, dict[str, Any]]
    comparisons: list[dict[str, Any]]

    @property
    def gained(self) -> bool:
        """Is hybrid search with the new model better, and by more than chance?"""
        first = self.comparisons[0]
        return bool(first["low"] > 0)


@dataclass(frozen=True)
class Adapted:
    """The result of an adaptation."""

    gained: bool  # by the last of the proofs
    proofs: list[Proof]
    pairs: dict[str, int]  # trained on, by their kind
    out: Path | None  # the adapted model, if it was written
    replaced: bool  # does the index use it?
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The result as plain values."""
        return {**asdict(self), "out": None if self.out is None else str(self.out)}


@taking(AdaptationSettings)
def adapt(
    path: str | Path,
    out: str | Path | None = None,
    *,
    queries: Mapping[str, str] | None = None,
    judgements: Judgements | None = None,
    device: str | None = None,
    say: Say = lambda text: None,
    progress: bool | None = None,
    **given: Any,
) -> Adapted:
    """Train the model of an index on pairs of texts from its documents; keep it if search gains.

    Documents that are held out, and judged queries if there are any, are searched with the old
    model and the new one. Only if nDCG@10 of hybrid search rises by more than chance, the model is
    written to `out`, and with `replace` the index is embedded with it. Judged queries decide where
    they are given.
    """
    how, start = picked(AdaptationSettings, given), time.monotonic()
    if given:
        raise BertsmithError(f"unknown setting {next(iter(given))!r}")
    if (queries is None) != (judgements is None):
        raise BertsmithError("queries and judgements go together: give both or neither")
    target = Path(out) if out is not None else Path(f"{Path(path)}-model")
    check_replaceable(target, how.overwrite)
    with Index.open(path, device=device) as index, tempfile.TemporaryDirectory() as folder:
        if index.about["model"] is None:
            raise BertsmithError(f"{path}: was built without vectors: there is no model to adapt")
        work = _Work(index, Path(folder), how, device, say, progress)
        proofs, counts = work.run(queries, judgements)
        gained = proofs[-1].gained
        replaced = gained and how.replace
        if gained:
            replace_directory(target, partial(_copy, work.model), how.overwrite)
        if replaced:
            say("embedding the index with the adapted model")
            weights = index.weights
            re_embed(index.path, Settings(encoder=work.encoder(target)))
            index.keep_weights(weights)
    seconds = round(time.monotonic() - start, 1)
    return Adapted(gained, proofs, counts, target if gained else None, replaced, seconds)


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True)


@dataclass
class _Work:
    """One adaptation, in a folder that is removed at its end."""

    index: Index
    folder: Path
    how: AdaptationSettings
    device: str | None
    say: Say
    progress: bool | None
    begun: float = field(default_factory=time.monotonic)

    @property
    def model(self) -> Path:
        """The directory of the adapted model."""
        return self.folder / "model"

    def encoder(self, directory: Path) -> Encoder:
        """A model as the encoder of this index: with its prompts and its way with long passages."""
        stamp = self.index.about["model"]
        prompts = stamp.get("query_prompt"), stamp.get("document_prompt")
        long, width = stamp.get("long", "window"), stamp.get("width")
        return Encoder(directory, self.device, long=long, prompts=prompts, width=width)

    def run(
        self, queries: Mapping[str, str] | None, judgements: Judgements | None
    ) -> tuple[list[Proof], dict[str, int]]:
        """Train a model, and compare it with the old one."""
        documents = _documents(self.index)
        pairs = pairs_of(documents, self.how.seed)
        held, rest = _split(pairs, self.how.seed)
        self.say(f"{sum(map(len, rest)):,} pairs; {len(held):,} documents are held out")
        proving = _Held(held, documents, self.how.seed)
        texts = [row["text"] for row in proving.rows[-TIMED:]]
        whole = self._seconds_to_embed(texts)
        proving.shorten(int(PROVING * self.how.minutes * 60 / whole))
        each = self._seconds_to_embed([text[:CUT] for text in texts])
        old = proving.scores(self.folder / "old", self.index.encoder, self.index.weights)
        chosen, epochs = self._affordable(rest, each)
        self._train(chosen, epochs, proving.passages)
        encoder = self.encoder(self.model)
        new = proving.scores(self.folder / "new", encoder, self.index.weights)
        proofs = [_proof("held-out pairs", old, new)]
        if queries is not None and judgements is not None:
            self.say("embedding all passages with the adapted model, for the judged queries")
            proofs.append(self._judged(encoder, queries, judgements))
        return proofs, dict(Counter(one.kind for one in chosen))

    def _seconds_to_embed(self, texts: list[str]) -> float:
        """How long the old model takes for one text, once it is loaded."""
        self.index.encoder.embed(texts[:1])
        began = time.monotonic()
        self.index.encoder.embed(texts)
        return (time.monotonic() - began) / len(texts)

    def _affordable(self, pairs: list[list[Pair]], each: float) -> tuple[list[Pair], int]:
        """As many pairs as the minutes allow, where embedding a passage takes `each` seconds.

        First one of each document, of different kinds, then another, and so on; then several
        epochs.
        """
        order = np.argsort(shuffled(np.arange(len(pairs)), len(pairs), self.how.seed, "order"))
        turned = [(pairs[place], turn % len(pairs[place])) for turn, place in enumerate(order)]
        rounds = zip_longest(*(own[first:] + own[:first] for own, first in turned))
        listed = [one for one in chain.from_iterable(rounds) if one is not None]
        row = each * PASSES * (1 + NEGATIVES)
        seconds = self.how.minutes * 60 * (1 - OVERHEAD) - 2 * (time.monotonic() - self.begun)
        count = max(FEWEST, int(seconds / row))
        return listed[:count], min(MOST_EPOCHS, max(1, count // len(listed)))

    def _train(self, pairs: list[Pair], epochs: int, held: frozenset[int]) -> None:
        """Train on pairs and their hard negatives, none of which is of a `held` passage."""
        self.say(f"searching hard negatives of {len(pairs):,} pairs")
        questions = [Question(one.query, (one.text,), (), one.passages | held) for one in pairs]
        examples = []
        for number, row in enumerate(mine(self.index, questions, negatives=NEGATIVES), 1):
            where = Where(str(self.index.path), number, "pair")
            near, *far = (text[:CUT] for text in (*row["positive"], *row["negative"]))
            first = far[0] if far else None
            examples.append(Related(row["anchor"], near, first, where, (), tuple(far[1:])))
        splits = Splits(Dataset(self.index.path, TASK.name, examples))
        old = self.index.encoder.model
        rate = self.how.learning_rate or RATE * WIDTH / old.checkpoint.config.width
        given = {
            "epochs": epochs,
            "learning_rate": rate,
            "seed": self.how.seed,
            "batch_size": BATCH,
        }
        settings, _ = chosen_settings(self.index.encoder.name, splits, given, own=False)
        ranks = Ranks(pick_device(self.device))

        def opened(training: Any, one: Any) -> LoadedModel:
            bert = open_fresh(self.index.encoder.name, training, one, ranks.device)
            query, document = self.index.encoder.prompts
            prompts = {**bert.sentence.prompts, "query": query or "", "document": document or ""}
            if query or document:
                bert.sentence = replace(
                    bert.sentence, more={**bert.sentence.more, "prompts": prompts}
                )
            return bert

        plan = Plan(
            self.index.encoder.name,
            splits,
            settings,
            learn=lambda train, one: TASK.training(train, one),
            open=opened,
            ranks=ranks,
            progress=self.progress,
        )
        self.say(f"training on {len(examples):,} pairs, epochs: {epochs}")
        carry_out(plan, self.model, overwrite=False, resume=False)

    def _judged(
        self, encoder: Encoder, queries: Mapping[str, str], judgements: Judgements
    ) -> Proof:
        """The proof by judged queries, on a copy of the index."""
        copy = self.folder / "copy"
        shutil.copytree(self.index.path, copy)
        re_embed(copy, Settings(encoder=encoder))
        weights = self.index.weights
        with Index(copy, model=encoder) as index:
            new = _scored(index, queries, judgements, weights)
        return _proof("judged queries", _scored(self.index, queries, judgements, weights), new)


def _documents(index: Index) -> list[list[Stored]]:
    """The passages of each document, in order; of a large index, those of some documents."""
    documents: dict[tuple[str, str], list[int]] = {}
    for number, place in index.places().items():
        documents.setdefault(place, []).append(number)
    listed, chosen, count = list(documents.values()), list[list[int]](), 0
    for place in np.argsort(shuffled(np.arange(len(listed)), len(listed), 0, "documents")):
        if count < MOST_PASSAGES:
            chosen.append(listed[place])
            count += len(listed[place])
    return [sorted(index.passages(ids), key=lambda one: one.start) for ids in chosen]


def _split(pairs: list[list[Pair]], seed: int) -> tuple[list[list[Pair]], list[list[Pair]]]:
    """The pairs of documents that are held out, and those of the others."""
    some = [one for one in pairs if one]
    order = np.argsort(shuffled(np.arange(len(some)), len(some), seed, "held out"))
    count = min(MOST_HELD, int(len(some) * HELD))
    held, rest = ([some[place] for place in part] for part in (order[:count], order[count:]))
    if len(held) < FEWEST or sum(map(len, rest)) < FEWEST:
        raise BertsmithError(
            f"too few documents to adapt to: {len(some):,} have a title, headings or sentences to "
            f"train on; {int(FEWEST / HELD)} are needed"
        )
    return held, rest


class _Held:
    """Documents that are held out: one text of each is to be found by its query, among others."""

    def __init__(self, held: list[list[Pair]], documents: list[list[Stored]], seed: int) -> None:
        places = shuffled(np.arange(len(held)), 1 << 20, seed, "kind")
        chosen = [own[int(place) % len(own)] for own, place in zip(held, places, strict=True)]
        self.queries = {str(n): pair.query for n, pair in enumerate(chosen)}
        self.judgements = {str(n): {str(n): 1} for n in range(len(chosen))}
        self.rows = [{"id": str(n), "text": pair.text} for n, pair in enumerate(chosen)]
        self.passages = frozenset[int]().union(*(pair.passages for pair in chosen))
        others = (one for some in documents for one in some if one.id not in self.passages)
        for one, _ in zip(others, range(OTHERS), strict=False):
            # Without its title, as the text that is to be found by its own.
            self.rows.append({"id": f"passage {one.id}", "text": one.text})

    def shorten(self, most: int) -> None:
        """Leave out other passages, so that there are at most so many rows, but not all of them."""
        del self.rows[max(most, len(self.queries) + FEWEST) :]

    def scores(
        self, path: Path, encoder: Encoder, weights: tuple[float, float]
    ) -> dict[str, SearchScores]:
        """Scores of a model on the held-out queries."""
        longest = max(len(row["text"]) for row in self.rows)
        settings = Settings(encoder=encoder, passage_size=min(100_000, max(50, longest)), overlap=0)
        add_documents(path, self.rows, settings)
        with Index(path, model=encoder) as index:
            return _scored(index, self.queries, self.judgements, weights)


def _scored(
    index: Index, queries: Mapping[str, str], judgements: Judgements, weights: tuple[float, float]
) -> dict[str, SearchScores]:
    modes = ("keywords", "vectors", "hybrid")
    return {
        mode: evaluate_search(index, queries, judgements, mode, weights=weights) for mode in modes
    }


def _proof(of: str, old: Mapping[str, SearchScores], new: Mapping[str, SearchScores]) -> Proof:
    """The new model beside keywords and the old one."""
    named = {
        "keywords": old["keywords"],
        "old vectors": old["vectors"],
        "old hybrid": old["hybrid"],
        "new vectors": new["vectors"],
        "new hybrid": new["hybrid"],
    }
    renamed = {name: replace(one, mode=name) for name, one in named.items()}
    versus = (
        ("old hybrid", "new hybrid"),
        ("old vectors", "new vectors"),
        ("keywords", "new hybrid"),
    )
    comparisons = [compare(renamed[one], renamed[two]) for one, two in versus]
    scores = {name: one.to_dict() for name, one in renamed.items()}
    return Proof(len(old["hybrid"].queries), of, scores, comparisons)
