"""Clustering of vectors by direction: k-means, with the number of groups by silhouette score."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertsmith.analysis.maps import Floats
from bertsmith.errors import BertsmithError

TRIES = 10  # starts of k-means, of which the best is kept
MOST = 6  # groups that are looked for
CLEAR = 0.15  # groups with a lower silhouette score are one


def unit(vectors: Floats) -> Floats:
    """Vectors of length one."""
    scaled: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return scaled


def clusters(vectors: Floats, count: int | None = None, seed: int = 0) -> tuple[list[int], float]:
    """The group of each vector, the largest group first, and their silhouette score.

    The mean is subtracted first: in most models all states lean one way. Without `count`, it is
    the number of groups with the highest silhouette score, or 1 if none is clear.
    """
    try:
        from sklearn.cluster import KMeans
        from sklearn.metrics import silhouette_score
    except ImportError:
        raise BertsmithError("needs scikit-learn: pip install 'bertsmith[analysis]'") from None

    directions = unit(vectors - vectors.mean(0))
    best, highest = np.zeros(len(vectors), np.int64), 0.0
    numbers = range(2, min(MOST, len(vectors) - 1) + 1) if count is None else [count]
    for number in numbers:
        groups = KMeans(number, n_init=TRIES, random_state=seed).fit_predict(directions)
        several = 1 < len(np.unique(groups)) < len(vectors)
        score = float(silhouette_score(directions, groups, metric="cosine")) if several else 0.0
        if count is not None or score > max(highest, CLEAR):
            best, highest = groups, score
    return _by_size(best), highest


def _by_size(groups: NDArray[np.int64]) -> list[int]:
    names, sizes = np.unique(groups, return_counts=True)
    order = {int(names[n]): rank for rank, n in enumerate(np.argsort(-sizes, kind="stable"))}
    return [order[int(group)] for group in groups]
