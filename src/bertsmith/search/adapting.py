"""`adapt`: the model of an index, trained on its documents without labels, if the search gains."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.data.tables import Where
from bertsmith.errors import BertsmithError
from bertsmith.examples.draw import shuffled
from bertsmith.finetuning import finetune
from bertsmith.folders import check_replaceable, replace_directory
from bertsmith.search.build import Settings, add_documents, re_embed
from bertsmith.search.encoder import Encoder, encoder_of
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
    """Scores of the old and the new model by the name of the method, and paired differences."""

    queries: int
    of: str  # "held-out pairs" or "judged queries"
    scores: dict[str, dict[str, Any]]
    comparisons: list[dict[str, Any]]

    @property
    def gained(self) -> bool:
        """Is hybrid search with the new model better, and by more than chance?"""
        return bool(self.comparisons[0]["low"] > 0)


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
    settings, start = picked(AdaptationSettings, given), time.monotonic()
    if given:
        raise BertsmithError(f"unknown setting {next(iter(given))!r}")
    if (queries is None) != (judgements is None):
        raise BertsmithError("queries and judgements go together: give both or neither")
    target = Path(out) if out is not None else Path(f"{Path(path)}-model")
    check_replaceable(target, settings.overwrite)
    with Index.open(path, device=device) as index, tempfile.TemporaryDirectory() as folder:
        if index.about["model"] is None:
            raise BertsmithError(f"{path}: was built without vectors: there is no model to adapt")
        work, model = Path(folder), Path(folder) / "model"
        documents = _documents(index)
        pairs = pairs_of(documents, settings.seed)
        held, rest = _split(pairs, settings.seed)
        say(f"{sum(map(len, rest)):,} pairs; {len(held):,} documents are held out")
        held_out = _HeldOut(held, documents, settings.seed)
        texts = [row["text"] for row in held_out.rows[-TIMED:]]
        fitting = PROVING * settings.minutes * 60 / _seconds_to_embed(index, texts)
        held_out.shorten(int(fitting))
        each = _seconds_to_embed(index, [text[:CUT] for text in texts])
        old = held_out.scores(work / "old", index.encoder, index.weights)
        seconds = settings.minutes * 60 * (1 - OVERHEAD) - 2 * (time.monotonic() - start)
        chosen, epochs = _affordable(rest, each, seconds, settings.seed)
        say(f"searching hard negatives of {len(chosen):,} pairs")
        examples = _examples(index, chosen, held_out.passages)
        say(f"training on {len(examples):,} pairs, epochs: {epochs}")
        encoder = index.encoder
        finetune(
            _with_prompts(encoder, work / "start"),
            Splits(Dataset(index.path, TASK.name, examples)),
            model,
            device=device,
            own_settings=False,
            progress=progress,
            epochs=epochs,
            learning_rate=settings.learning_rate
            or RATE * WIDTH / encoder.model.checkpoint.config.width,
            seed=settings.seed,
            batch_size=BATCH,
        )
        stamp = index.about["model"]  # its prompts, and its way with long passages
        adapted = encoder_of(stamp, model, device)
        new = held_out.scores(work / "new", adapted, index.weights)
        proofs = [_proof("held-out pairs", old, new)]
        if queries is not None and judgements is not None:
            say("embedding all passages with the adapted model, for the judged queries")
            old = _scored(index, queries, judgements, index.weights)
            shutil.copytree(path, work / "copy")
            re_embed(work / "copy", Settings(encoder=adapted))
            with Index(work / "copy", model=adapted) as other:
                new = _scored(other, queries, judgements, index.weights)
            proofs.append(_proof("judged queries", old, new))
        gained = proofs[-1].gained
        if gained:
            replace_directory(target, partial(_copy, model), settings.overwrite)
        if gained and settings.replace:
            say("embedding the index with the adapted model")
            weights = index.weights
            re_embed(index.path, Settings(encoder=encoder_of(stamp, target, device)))
            index.keep_weights(weights)
    return Adapted(
        gained,
        proofs,
        dict(Counter(pair.kind for pair in chosen)),
        target if gained else None,
        gained and settings.replace,
        round(time.monotonic() - start, 1),
    )


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True)


def _seconds_to_embed(index: Index, texts: list[str]) -> float:
    """How long the model of an index takes for one text, once it is loaded."""
    index.encoder.embed(texts[:1])
    began = time.monotonic()
    index.encoder.embed(texts)
    return (time.monotonic() - began) / len(texts)


def _affordable(
    pairs: list[list[Pair]], each: float, seconds: float, seed: int
) -> tuple[list[Pair], int]:
    """As many pairs as can be trained on, where embedding a passage takes `each` seconds.

    First one of each document, of different kinds, then another, and so on; then several
    epochs.
    """
    order = np.argsort(shuffled(np.arange(len(pairs)), len(pairs), seed, "order"))
    turned = [(pairs[place], turn % len(pairs[place])) for turn, place in enumerate(order)]
    rounds = zip_longest(*(own[first:] + own[:first] for own, first in turned))
    listed = [pair for pair in chain.from_iterable(rounds) if pair is not None]
    count = max(FEWEST, int(seconds / (each * PASSES * (1 + NEGATIVES))))
    return listed[:count], min(MOST_EPOCHS, max(1, count // len(listed)))


def _examples(index: Index, pairs: list[Pair], held: frozenset[int]) -> list[Related]:
    """Pairs with their hard negatives, none of which is of a `held` passage."""
    questions = [Question(pair.query, (pair.text,), (), pair.passages | held) for pair in pairs]
    examples = []
    for number, row in enumerate(mine(index, questions, negatives=NEGATIVES), 1):
        near, *far = (text[:CUT] for text in (*row["positive"], *row["negative"]))
        where = Where(str(index.path), number, "pair")
        first = far[0] if far else None
        examples.append(Related(row["anchor"], near, first, where, (), tuple(far[1:])))
    return examples


def _with_prompts(encoder: Encoder, folder: Path) -> str | Path:
    """The model of an index, or a copy in a folder if the index has prompts of its own."""
    sentence = encoder.model.sentence
    if not any(encoder.prompts) or encoder.prompts == sentence.search_prompts:
        return encoder.name
    query, document = (prompt or "" for prompt in encoder.prompts)
    prompts = {**sentence.prompts, "query": query, "document": document}
    bert = copy(encoder.model)
    bert.sentence = replace(sentence, more={**sentence.more, "prompts": prompts})
    bert.save(folder)
    return folder


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


class _HeldOut:
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
    scores = {
        "keywords": old["keywords"],
        "old vectors": old["vectors"],
        "old hybrid": old["hybrid"],
        "new vectors": new["vectors"],
        "new hybrid": new["hybrid"],
    }
    scores = {name: replace(one, mode=name) for name, one in scores.items()}
    versus = (
        ("old hybrid", "new hybrid"),
        ("old vectors", "new vectors"),
        ("keywords", "new hybrid"),
    )
    comparisons = [compare(scores[first], scores[second]) for first, second in versus]
    count = len(old["hybrid"].queries)
    return Proof(count, of, {name: one.to_dict() for name, one in scores.items()}, comparisons)
