"""Scores of rankings, as trec_eval computes them: nDCG, recall and reciprocal rank."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

Grades = Mapping[str, float]  # document → relevance; 0 and below are not relevant


def ordered(scores: Mapping[str, float]) -> list[str]:
    """Documents by falling score; ties, in single precision, by falling name, as in trec_eval."""
    single = {name: float(np.float32(score)) for name, score in scores.items()}
    return sorted(sorted(single, reverse=True), key=lambda name: -single[name])


def ndcg(ranking: Sequence[str], grades: Grades, cut: int = 10) -> float:
    """Normalised discounted cumulative gain of the first `cut` documents; gains are the grades."""
    ideal = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
    best = _gain(ideal[:cut])
    if not best:
        return 0.0
    return _gain([max(0, grades.get(name, 0)) for name in ranking[:cut]]) / best


def _gain(grades: Sequence[float]) -> float:
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def recall(ranking: Sequence[str], grades: Grades, cut: int = 100) -> float:
    """The share of relevant documents among the first `cut`."""
    relevant = {name for name, grade in grades.items() if grade > 0}
    if not relevant:
        return 0.0
    return len(relevant.intersection(ranking[:cut])) / len(relevant)


def reciprocal_rank(ranking: Sequence[str], grades: Grades) -> float:
    """1 / the rank of the first relevant document; 0 where there is none."""
    ranks = (rank for rank, name in enumerate(ranking, 1) if grades.get(name, 0) > 0)
    return 1 / next(ranks, math.inf)
