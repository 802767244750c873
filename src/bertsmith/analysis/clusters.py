"""Groups of vectors by direction: k-means on the sphere, and how many groups there are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertsmith.analysis.attention import Floats

Numbers = NDArray[np.int64]
TRIES, ROUNDS = 10, 100
MOST = 6  # groups that are looked for
CLEAR = 0.15  # groups that are less apart than this are one


def unit(vectors: Floats) -> Floats:
    """Vectors of length one."""
    made: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return made


def clusters(vectors: Floats, count: int | None = None, seed: int = 0) -> tuple[list[int], float]:
    """The group of each vector, the largest group first, and how clearly they are apart.

    What all vectors share is taken away first: in most models all states lean one way.
    """
    directions = unit(vectors - vectors.mean(0))
    if count is not None:
        groups = _grouped(directions, count, seed)
        return _by_size(groups), silhouette(directions, groups)
    best: Numbers = np.zeros(len(vectors), np.int64)
    apart = 0.0
    for number in range(2, min(MOST, len(vectors) - 1) + 1):
        groups = _grouped(directions, number, seed)
        found = silhouette(directions, groups)
        if found > max(apart, CLEAR):
            best, apart = groups, found
    return _by_size(best), apart


def _grouped(directions: Floats, count: int, seed: int) -> Numbers:
    """The best of several k-means, each begun with vectors that are far from each other."""
    random = np.random.default_rng(seed)
    best: Numbers = np.zeros(len(directions), np.int64)
    highest = -np.inf
    for _ in range(TRIES):
        centres = directions[[int(random.integers(len(directions)))]]
        while len(centres) < count:
            far = np.maximum(1 - (directions @ centres.T).max(1), 1e-9)
            chosen = int(random.choice(len(directions), p=far / far.sum()))
            centres = np.concatenate([centres, directions[[chosen]]])
        groups = (directions @ centres.T).argmax(1)
        for _ in range(ROUNDS):
            sums = np.zeros_like(centres)
            np.add.at(sums, groups, directions)
            centres = unit(sums)
            moved = (directions @ centres.T).argmax(1)
            if np.array_equal(moved, groups):
                break
            groups = moved
        total = float((directions @ centres.T).max(1).sum())
        if total > highest:
            best, highest = groups, total
    return best


def silhouette(directions: Floats, groups: Numbers) -> float:
    """How much nearer vectors are to their own group than to the next one, on average."""
    names, sizes = np.unique(groups, return_counts=True)
    if len(names) < 2:
        return 0.0
    distance = 1 - directions @ directions.T
    sums = np.stack([distance[:, groups == name].sum(1) for name in names], axis=1)
    own = np.searchsorted(names, groups)
    row = np.arange(len(groups))
    alone = sizes[own] == 1
    within = sums[row, own] / np.maximum(sizes[own] - 1, 1)
    means = sums / sizes
    means[row, own] = np.inf
    next_best = means.min(1)
    scores = (next_best - within) / np.maximum(np.maximum(next_best, within), 1e-12)
    return float(np.where(alone, 0.0, scores).mean())


def _by_size(groups: Numbers) -> list[int]:
    names, sizes = np.unique(groups, return_counts=True)
    order = {int(names[n]): rank for rank, n in enumerate(np.argsort(-sizes, kind="stable"))}
    return [order[int(group)] for group in groups]
