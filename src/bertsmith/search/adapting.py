"""`adapt`: a linear map of an index's vectors, learned without labels, if the search gains."""

import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertsmith.checkpoint.dense import IDENTITY, Dense
from bertsmith.errors import BertsmithError
from bertsmith.examples.draw import shuffled
from bertsmith.folders import check_replaceable, replace_directory
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.opening import open_model
from bertsmith.search.build import BuildSettings, add_documents, re_embed
from bertsmith.search.encoder import TextEncoder, Vectors, encoder_of
from bertsmith.search.evaluate import Judgements, SearchScores, compare, evaluate_search
from bertsmith.search.index import MODES, Index
from bertsmith.search.pairs import Pair, pairs_of
from bertsmith.search.store import StoredPassage
from bertsmith.settings import picked, taking
from bertsmith.settings.search import AdaptationSettings
from bertsmith.train.distributed import Ranks
from bertsmith.train.optimizer import optimizer_for
from bertsmith.train.recipe import TrainPart
from bertsmith.train.step import MicroBatch, TrainingStep

MOST_PASSAGES = 50_000  # that pairs are made of
HELD, MOST_HELD = 0.2, 400  # documents that are held out: a fraction, and the most
FEWEST = 50  # pairs to train on, and documents that are held out
OTHERS = 1600  # passages beside the held-out texts, among which these are searched
COST = 1.3  # time of embedding a pair, in that of a passage
PROVING = 0.15  # of the time: embedding the held-out passages with one of the models
OVERHEAD = 0.4  # of the time: embedding the held-out passages again, and learning
TIMED = 32  # texts on which the speed of the model is measured
# Chosen on Cranfield's odd queries. At a temperature of 0.05 less than half is gained.
TEMPERATURE, RATE, BATCH = 0.1, 0.3, 256  # RATE: learning rate times the width
CHECKED, MOST_CHECKED = 0.1, 1024  # pairs that tell when to stop: a fraction, and the most
MOST_STEPS, EVERY, PATIENCE = 1000, 20, 2  # PATIENCE: checks without a lower loss
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
    **given: Any,
) -> Adapted:
    """Adapt the model of an index to pairs of texts from its documents; keep it if search gains.

    A linear map of the vectors is learned and stored as a `Dense` module. Held-out documents, and
    judged queries if given, are searched with the old and the new model; the latter decide. Only if
    nDCG@10 of hybrid search rises by more than chance, the model is written to `out`, and with
    `replace` the index is embedded with it.
    """
    settings, start = picked(AdaptationSettings, given, only=True), time.monotonic()
    if (queries is None) != (judgements is None):
        raise BertsmithError("queries and judgements go together: give both or neither")
    target = Path(out) if out is not None else Path(f"{Path(path)}-model")
    check_replaceable(target, settings.overwrite)
    with Index.open(path, device=device) as index, tempfile.TemporaryDirectory() as folder:
        if index.about["model"] is None:
            raise BertsmithError(f"{path}: was built without vectors: there is no model to adapt")
        work, model = Path(folder), Path(folder) / "model"
        documents = _documents(index)
        held, rest = _split(pairs_of(documents, settings.seed), settings.seed)
        say(f"{sum(map(len, rest)):,} pairs; {len(held):,} documents are held out")
        held_out = _HeldOut(held, documents, settings.seed)
        sample = [row["text"] for row in held_out.rows[-TIMED:]]
        rows = int(PROVING * settings.minutes * 60 / _seconds_to_embed(index, sample))
        del held_out.rows[max(rows, len(held) + FEWEST) :]
        old = held_out.scores(work / "old", index.encoder, index.weights)
        each = _seconds_to_embed(index, sample)
        seconds = settings.minutes * 60 * (1 - OVERHEAD) - 2 * (time.monotonic() - start)
        most = max(FEWEST, int(seconds / (each * COST)))
        chosen = list(islice(_in_turns(rest, settings.seed), most))
        say(f"embedding {len(chosen):,} pairs")
        query_vectors = index.encoder.embed_queries([pair.query for _, pair in chosen])
        text_vectors = index.encoder.embed([pair.text for _, pair in chosen])
        say("learning a linear map of the vectors")
        owners = np.array([owner for owner, _ in chosen])
        weight = learned_map(query_vectors, text_vectors, owners, settings.seed)
        stamp = index.about["model"]  # with its prompts, and how long passages are read
        _mapped(index.encoder, weight).save(model)
        adapted = encoder_of(stamp, model, device)
        new = held_out.scores(work / "new", adapted, index.weights)
        proofs = [_proof("held-out pairs", old, new)]
        if queries is not None and judgements is not None:
            say("embedding all passages with the adapted model, for the judged queries")
            old = _scored(index, queries, judgements, index.weights)
            shutil.copytree(path, work / "copy")
            re_embed(work / "copy", BuildSettings(encoder=adapted))
            with Index(work / "copy", model=adapted) as other:
                new = _scored(other, queries, judgements, index.weights)
            proofs.append(_proof("judged queries", old, new))
        gained = proofs[-1].gained
        if gained:
            copy = partial(shutil.copytree, model, dirs_exist_ok=True)
            replace_directory(target, copy, settings.overwrite)
        if gained and settings.replace:
            say("embedding the index with the adapted model")
            weights = index.weights
            re_embed(index.path, BuildSettings(encoder=encoder_of(stamp, target, device)))
            index.keep_weights(weights)
    kinds, seconds = Counter(pair.kind for _, pair in chosen), round(time.monotonic() - start, 1)
    written, replaced = target if gained else None, gained and settings.replace
    return Adapted(gained, proofs, dict(kinds), written, replaced, seconds)


def _seconds_to_embed(index: Index, texts: list[str]) -> float:
    index.encoder.embed(texts[:1])
    began = time.monotonic()
    index.encoder.embed(texts)
    return (time.monotonic() - began) / len(texts)


def _in_turns(pairs: list[list[Pair]], seed: int) -> Iterator[tuple[int, Pair]]:
    """One pair of each document with its number, of different kinds; then another, and so on."""
    order = _random_order(len(pairs), seed, "order")
    for turn in range(max(map(len, pairs))):
        for kind, document in enumerate(order):
            choices = pairs[document]
            if turn < len(choices):
                yield document, choices[(kind + turn) % len(choices)]


def _random_order(count: int, seed: int, purpose: str) -> list[int]:
    return np.argsort(shuffled(np.arange(count), count, seed, purpose)).tolist()


def learned_map(queries: Vectors, texts: Vectors, owners: Any, seed: int = 0) -> Tensor:
    """The linear map (D, D) with which queries (N, D) are nearest to their texts (N, D).

    Contrastive loss within a step, in both directions; texts of one owner are no negatives of one
    another. Pairs of some owners are kept for early stopping: the map with the lowest loss of
    these is returned, which may be the identity.
    """
    last = np.unique(owners)[-max(1, int(CHECKED * len(np.unique(owners)))) :]
    kept_out = torch.from_numpy(np.isin(owners, last))
    checks, learned = kept_out.nonzero().flatten()[:MOST_CHECKED], (~kept_out).nonzero().flatten()
    generator = torch.Generator().manual_seed(seed)
    mapping = LinearMap(torch.from_numpy(np.stack([queries, texts])), torch.from_numpy(owners))
    part = TrainPart(learning_rate=RATE / len(mapping.identity), weight_decay=0.0, epsilon=1e-8)
    alone = Ranks.alone(torch.device("cpu"))
    step = TrainingStep(mapping, optimizer_for(mapping, part), alone, clip=0.0)
    best, lowest, waited = mapping.identity, float("inf"), 0
    for number in range(MOST_STEPS + 1):
        if number % EVERY == 0:
            with torch.no_grad():
                loss = float(mapping(checks)[0])
            waited = 0 if loss < lowest else waited + 1
            if loss < lowest:
                best, lowest = mapping.identity + mapping.change.detach(), loss
            if waited == PATIENCE:
                break
        chosen = learned[torch.randint(len(learned), (BATCH,), generator=generator).unique()]
        step([MicroBatch((chosen,))])
    return best


class LinearMap(nn.Module):
    """Contrastive loss of pairs of vectors after a linear map."""

    def __init__(self, rows: Tensor, owners: Tensor) -> None:
        """`rows` are (2, N, D), the pairs; `owners` (N,) says whose they are."""
        super().__init__()
        self.rows, self.owners, self.identity = rows, owners, torch.eye(rows.shape[-1])
        self.change = nn.Parameter(torch.zeros_like(self.identity))

    def forward(self, chosen: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss of some pairs; the others among them are the negatives."""
        mapped = self.rows[:, chosen] @ (self.identity + self.change).T
        queries, texts = F.normalize(mapped, dim=-1)
        same = self.owners[chosen][:, None] == self.owners[chosen]
        same.fill_diagonal_(False)
        scores = (queries @ texts.T / TEMPERATURE).masked_fill(same, float("-inf"))
        targets = torch.arange(len(chosen))
        return (F.cross_entropy(scores, targets) + F.cross_entropy(scores.T, targets)) / 2, {}


def _mapped(encoder: TextEncoder, weight: Tensor) -> LoadedModel:
    """The model of an index with a linear map after its vectors, and the prompts of the index."""
    bert = open_model(encoder.name, device="cpu", progress=False)
    # An index of shorter vectors: the map reads the elements that are kept.
    wide = F.pad(weight, (0, bert.vector_width - weight.shape[1]))
    dense, config = (*bert.sentence.dense, Dense(wide, None, IDENTITY)), bert.sentence.more
    if any(encoder.prompts):
        query, document = (prompt or "" for prompt in encoder.prompts)
        prompts = {**bert.sentence.prompts, "query": query, "document": document}
        config = {**config, "prompts": prompts}
    bert.sentence = replace(bert.sentence, dense=dense, more=config)
    return bert


def _documents(index: Index) -> list[list[StoredPassage]]:
    """The passages of each document, in order; of a large index, those of some documents."""
    by_place = defaultdict[tuple[str, str], list[int]](list)
    for number, place in index.places().items():
        by_place[place].append(number)
    ids, documents, count = list(by_place.values()), list[list[StoredPassage]](), 0
    for number in _random_order(len(ids), 0, "documents"):
        if count < MOST_PASSAGES:
            passages = index.passages(ids[number])
            documents.append(sorted(passages, key=lambda passage: passage.start))
            count += len(passages)
    return documents


def _split(pairs: list[list[Pair]], seed: int) -> tuple[list[list[Pair]], list[list[Pair]]]:
    pairs = [*filter(None, pairs)]
    count = min(MOST_HELD, int(len(pairs) * HELD))
    order = [pairs[number] for number in _random_order(len(pairs), seed, "held out")]
    if count < FEWEST or sum(map(len, order[count:])) < FEWEST:
        usable = f"{len(pairs):,} have a title, headings or sentences to train on"
        needed = f"{int(FEWEST / HELD)} are needed"
        raise BertsmithError(f"too few documents to adapt to: {usable}; {needed}")
    return order[:count], order[count:]


class _HeldOut:
    """Held-out documents: a query for one text of each, searched among those and others."""

    def __init__(
        self, held: list[list[Pair]], documents: list[list[StoredPassage]], seed: int
    ) -> None:
        numbered = zip(held, shuffled(np.arange(len(held)), 1 << 20, seed, "kind"), strict=True)
        chosen = [pairs[int(number) % len(pairs)] for pairs, number in numbered]
        self.queries = {str(n): pair.query for n, pair in enumerate(chosen)}
        self.judgements = {str(n): {str(n): 1} for n in range(len(chosen))}
        self.rows = [{"id": str(n), "text": pair.text} for n, pair in enumerate(chosen)]
        known = frozenset[int]().union(*(pair.passages for pair in chosen))
        others = (passage for passage in chain(*documents) if passage.id not in known)
        # Without titles, as the texts of pairs whose query is the title.
        self.rows += [{"id": f"passage {p.id}", "text": p.text} for p in islice(others, OTHERS)]

    def scores(
        self, path: Path, encoder: TextEncoder, weights: tuple[float, float]
    ) -> dict[str, SearchScores]:
        """Scores of a model on the held-out queries."""
        size = min(100_000, max(50, *(len(row["text"]) for row in self.rows)))
        settings = BuildSettings(encoder=encoder, passage_size=size, overlap=0)
        add_documents(path, self.rows, settings)
        with Index(path, model=encoder) as index:
            return _scored(index, self.queries, self.judgements, weights)


def _scored(
    index: Index, queries: Mapping[str, str], judgements: Judgements, weights: tuple[float, float]
) -> dict[str, SearchScores]:
    return {
        mode: evaluate_search(index, queries, judgements, mode, weights=weights) for mode in MODES
    }


def _proof(of: str, old: Mapping[str, SearchScores], new: Mapping[str, SearchScores]) -> Proof:
    """The new model beside keywords and the old one."""
    scores = {"keywords": old["keywords"]}
    for age, model in (("old", old), ("new", new)):
        for mode in ("vectors", "hybrid"):
            scores[f"{age} {mode}"] = replace(model[mode], mode=f"{age} {mode}")
    news = {"old hybrid": "new hybrid", "old vectors": "new vectors", "keywords": "new hybrid"}
    comparisons = [compare(scores[first], scores[second]) for first, second in news.items()]
    count = len(old["hybrid"].queries)
    return Proof(count, of, {name: row.to_dict() for name, row in scores.items()}, comparisons)
