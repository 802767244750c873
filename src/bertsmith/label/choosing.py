"""Which texts to label next: those that the model doubts, and that differ from one another."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
NEAR = 0.97  # cosine from which on two texts are near-duplicates: one of them is enough
WIDTH = 10  # candidates for each text of a batch, the most doubtful ones
MOST = 2000  # texts that are grouped where there are no doubts; of more, a random part


def chosen(
    vectors: Vectors,
    done: Sequence[int],
    count: int,
    doubts: NDArray[np.float64] | None = None,
    *,
    seed: int = 0,
) -> list[int]:
    """Return the numbers of `count` texts to label next.

    `done` are the texts that need no label. With `doubts` (from 0 to 1, one for each text), the
    candidates are the most doubtful; they are grouped, and each group gives the text nearest to its
    centre. Without, all texts are grouped. Near-duplicates of each other or of labelled texts come
    last.
    """
    draws = np.random.default_rng([seed, len(done)])
    left = np.setdiff1d(np.arange(len(vectors)), np.asarray(done, dtype=np.int64))
    if len(left) <= count:
        return list(map(int, left))
    if doubts is not None:
        order = np.argsort(-doubts[left], kind="stable")
        left = left[order[: WIDTH * count]]
    elif len(left) > MOST:
        left = np.sort(draws.choice(left, MOST, replace=False))
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    weights = np.ones(len(left)) if doubts is None else doubts[left] + 1e-6
    fresh = _unlike(unit[left], unit[np.asarray(done, dtype=np.int64)])
    groups = _groups(unit[left[fresh]], weights[fresh], count, draws)
    picked = list(map(int, left[fresh][groups]))
    rest = [number for number in map(int, left) if number not in set(picked)]
    return picked + rest[: count - len(picked)]


def _unlike(candidates: Vectors, known: Vectors) -> NDArray[np.int64]:
    """The candidates that are no near-duplicates of known texts, or of candidates before them."""
    kept: list[int] = []
    near = np.zeros(len(candidates), bool)
    if len(known):
        near = (candidates @ known.T).max(1) > NEAR
    for number in np.flatnonzero(~near):
        if not near[number]:
            kept.append(int(number))
            near |= candidates @ candidates[number] > NEAR
    return np.asarray(kept, dtype=np.int64)


def _groups(
    vectors: Vectors, weights: NDArray[np.float64], count: int, draws: np.random.Generator
) -> list[int]:
    """Weighted k-means on the sphere from k-means++ seeds: the text nearest to each centre."""
    if len(vectors) <= count:
        return list(range(len(vectors)))
    apart, seeds = np.ones(len(vectors)), list[int]()
    for _ in range(count):
        chances = weights * apart
        total = chances.sum()
        p = chances / total if total > 0 else None
        seeds.append(int(draws.choice(len(vectors), p=p)))
        apart = np.minimum(apart, np.maximum(1 - vectors @ vectors[seeds[-1]], 0))
    centres = vectors[seeds]
    for _ in range(10):
        nearest = (vectors @ centres.T).argmax(1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, vectors * weights[:, None].astype(np.float32))
        centres = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
    closeness, picked = vectors @ centres.T, list[int]()
    for group in np.argsort(-np.bincount(closeness.argmax(1), weights, count)):
        closeness[picked] = -2
        picked.append(int(closeness[:, group].argmax()))
    return picked


def fraction(name: str, *salt: Any) -> float:
    """A number from 0 to 1 that depends on a name alone: a fixed random draw for each text."""
    digest = hashlib.sha256("\0".join([name, *map(str, salt)]).encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64


def doubt(prediction: Any) -> float:
    """How much a model doubts its prediction: 1 where the two likeliest labels are even."""
    scores = prediction.output.get("scores")
    if isinstance(scores, dict) and len(scores) > 1:
        first, second = sorted(scores.values(), reverse=True)[:2]
        if sum(scores.values()) < 1.01:  # one label of several
            return float(1 - first + second)
    return float(1 - prediction.confidence)
