"""Weights of keywords and vectors in hybrid search, learned from judged queries."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from bertsmith.errors import BertsmithError
from bertsmith.examples.draw import shuffled
from bertsmith.metrics.labels import weighted_mean
from bertsmith.metrics.paired import resample_pair
from bertsmith.metrics.ranking import ndcg, ordered
from bertsmith.search.evaluate import DEPTH, Judgements, document_name, judged_queries
from bertsmith.search.fuse import Ranking, fuse
from bertsmith.search.index import FUSION, Index

Pair = tuple[float, float]
STEPS = [round(number / 10, 1) for number in range(11)]
GRID = [(1.0, step) for step in STEPS] + [(step, 1.0) for step in reversed(STEPS[:-1])]
FOLDS = 5
FEWEST = 20  # judged queries


@dataclass(frozen=True)
class LearnedWeights:
    """Weights that were chosen on judged queries, and their cross-validated gain in nDCG@10."""

    weights: Pair
    former: Pair
    queries: int
    ndcg: float  # each fifth of the queries with the weights that are best for the others
    former_ndcg: float
    difference: float
    low: float  # 95% bootstrap interval of the difference
    high: float
    p_value: float

    @property
    def gained(self) -> bool:
        """Is the whole interval of the difference above 0?"""
        return self.low > 0

    def to_dict(self) -> dict[str, Any]:
        """The result as plain values; `stored` says whether the index uses the weights."""
        return {**asdict(self), "stored": self.gained}


def learn_weights(
    index: Index,
    queries: Mapping[str, str],
    judgements: Judgements,
    draws: int = 1000,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> LearnedWeights:
    """Choose the weights of hybrid search on judged queries; the index stores them if they help.

    The gain over the weights in use is cross-validated: queries are never scored with weights that
    were chosen on them. Unless its interval is above 0, the index is not changed.
    """
    judged = judged_queries(queries, judgements)
    if len(judged) < FEWEST:
        needed = f"weights are learned from {FEWEST} judged queries or more"
        raise BertsmithError(f"{needed}; there are {len(judged)}")
    former = index.weights
    grid = [former, *(pair for pair in GRID if pair != former)]  # of equals, the first is kept
    names = {number: document_name(*place) for number, place in index.places().items()}
    scores = np.empty((len(judged), len(grid)))
    for row, name in enumerate(judged):
        rankings = index.rankings(queries[name])
        for column, pair in enumerate(grid):
            documents = _documents(fuse(*rankings, pair, FUSION), names)
            scores[row, column] = ndcg(ordered(documents), judgements[name])
        report(row + 1, len(judged))
    result = _compared(grid, scores, draws)
    if result.gained:
        index.keep_weights(result.weights)
    return result


def _documents(ranking: Ranking, names: Mapping[int, str]) -> dict[str, float]:
    """The best documents with the scores of their best passages."""
    best: dict[str, float] = {}
    for passage, score in ranking:
        best.setdefault(names[passage], score)
        if len(best) == DEPTH:
            break
    return best


def _compared(grid: list[Pair], scores: Any, draws: int) -> LearnedWeights:
    """The best weights for all queries, and the cross-validated gain over the first of the grid."""
    folds = shuffled(np.arange(len(scores)), len(scores), 0, "folds") % FOLDS
    held_out = np.empty(len(scores))
    for fold in range(FOLDS):
        own = folds == fold
        held_out[own] = scores[own, scores[~own].mean(0).argmax()]
    means = partial(weighted_mean, scores[:, 0]), partial(weighted_mean, held_out)
    gain = resample_pair(*means, len(scores), draws=draws)
    best, ndcgs = grid[int(scores.mean(0).argmax())], (held_out.mean(), scores[:, 0].mean())
    return LearnedWeights(best, grid[0], len(scores), *map(float, ndcgs), **asdict(gain))
