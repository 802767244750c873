"""Rankings of passages, and their fusion: two → one, by scores on a common scale."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Ids = np.ndarray[Any, np.dtype[np.int64]]  # of passages
Ranking = Sequence[tuple[int, float]]


def min_max(ranking: Ranking) -> dict[int, float]:
    """Scores moved to the range from 0 to 1; a ranking of equal scores is 1 throughout."""
    scores = [score for _, score in ranking]
    low, width = min(scores, default=0.0), max(scores, default=0.0) - min(scores, default=0.0)
    return {number: (score - low) / width if width > 0 else 1.0 for number, score in ranking}


def reciprocal_rank(ranking: Ranking, k: int = 60) -> dict[int, float]:
    """1 / (k + rank), by which scores of any scale can be added."""
    return {number: 1 / (k + rank) for rank, (number, _) in enumerate(ranking, 1)}


SCALES = {"min-max": min_max, "rrf": reciprocal_rank}


def fuse(
    keywords: Ranking, vectors: Ranking, weights: tuple[float, float], how: str
) -> list[tuple[int, float]]:
    """Return the weighted sum; a missing score counts as 0. Ties go to the smaller id."""
    scores: dict[int, float] = {}
    for ranking, weight in zip((keywords, vectors), weights, strict=True):
        for number, score in SCALES[how](ranking).items():
            scores[number] = scores.get(number, 0.0) + weight * score
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))
