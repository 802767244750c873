"""Word senses: the vectors of one word in many sentences, grouped."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.analysis.maps import Floats
from bertsmith.errors import BertsmithError
from bertsmith.files import atomic, write_text, writing
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.states import all_depths, check_depth, hidden_states
from bertsmith.tasks.embedding import unit_vectors

FOLDS = 5


@dataclass(frozen=True)
class Occurrence:
    """One occurrence of a word: text[start:end]."""

    text: str
    start: int
    end: int

    def context(self, width: int = 40) -> tuple[str, str, str]:
        """Return the text before the word, the word, and the text after it."""
        left = self.text[max(0, self.start - width) : self.start]
        right = self.text[self.end : self.end + width]
        before = "…" if self.start > width else ""
        after = "…" if self.end + width < len(self.text) else ""
        return before + left, self.text[self.start : self.end], right + after

    def around(self, width: int = 40) -> str:
        """Return the context with the word in brackets."""
        left, word, right = self.context(width)
        return f"{left}[{word}]{right}"


def find(word: str, texts: Sequence[str], most: int | None = None) -> list[Occurrence]:
    """Find a word in texts: whole words, ignoring case."""
    if not word.strip():
        raise BertsmithError("no word to look for")
    if isinstance(texts, str):
        raise BertsmithError("texts must be a list of strings, not of type str")
    pattern = re.compile(rf"(?<!\w){re.escape(word.strip())}(?!\w)", re.IGNORECASE)
    matches = ((text, match) for text in texts for match in pattern.finditer(text))
    return [Occurrence(text, *match.span()) for text, match in islice(matches, most)]


def vectors(bert: LoadedModel, places: Sequence[Occurrence]) -> Floats:
    """Return the mean state of each occurrence's tokens at every depth, 0 first: (depths, N, D)."""
    owners: dict[str, list[int]] = {}
    for number, place in enumerate(places):
        owners.setdefault(place.text, []).append(number)
    spans = [[(places[n].start, places[n].end) for n in own] for own in owners.values()]
    depths = len(all_depths(bert))
    result = np.zeros((depths, len(places), bert.checkpoint.config.width), np.float32)
    states = hidden_states(bert, owners, spans=spans)
    for own, one in zip(owners.values(), states, strict=True):
        result[:, own] = one.vectors
    for place, missing in zip(places, np.isnan(result[0, :, 0]), strict=True):
        if missing:
            raise BertsmithError(f"the tokenizer has no token for {place.around()!r}")
    return result


def static(bert: LoadedModel, word: str) -> Floats:
    """Return the word's vector in the embedding table, which does not depend on context: (D,)."""
    ids = bert.encode([word])[0].ids
    with torch.inference_mode():
        table = bert.model.encoder.embedding.token.weight  # type: ignore[union-attr]
        vector: Floats = table[ids].float().mean(0).cpu().numpy()  # type: ignore[index]
    return vector


@dataclass(frozen=True)
class Senses:
    """Occurrences of a word, their vectors at one depth, and the group of each."""

    word: str
    places: list[Occurrence]
    depth: int
    vectors: Floats  # (N, D), at this depth
    groups: list[int]  # from 0, the largest first
    alike: list[float]  # mean cosine between occurrences, at every depth
    silhouette: float  # how clearly the groups are apart: 1 wholly, 0 not at all

    @cached_property
    def plane(self) -> Floats:
        """The vectors projected onto their first two principal components: (N, 2)."""
        centred = unit_vectors(self.vectors) - unit_vectors(self.vectors).mean(0)
        left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
        points: Floats = np.zeros((len(centred), 2), np.float32)
        width = min(2, len(sizes))
        points[:, :width] = left[:, :width] * sizes[:width]
        return points

    def members(self, group: int) -> list[int]:
        """Return the occurrences of a group, the most typical first."""
        own = [number for number, label in enumerate(self.groups) if label == group]
        around = unit_vectors(self.vectors[own])
        return [own[n] for n in np.argsort(-(around @ around.mean(0)), kind="stable")]

    def words(self, group: int, most: int = 6) -> list[str]:
        """Return words that occur near this group more often than near the others."""
        counts = [Counter[str](), Counter[str]()]
        for place, label in zip(self.places, self.groups, strict=True):
            about = place.text[max(0, place.start - 80) : place.end + 80].lower()
            spoken = set(re.findall(r"[^\W\d_]{3,}", about)) - {self.word.lower()}
            counts[label == group].update(spoken)
        others, own = counts
        sizes = [max(1, sum(label != group for label in self.groups)), self.groups.count(group)]
        scored = {
            word: np.sqrt(count) * np.log((count / sizes[1]) / ((others[word] + 0.5) / sizes[0]))
            for word, count in own.items()
            if count > 1 or sizes[1] < 4
        }
        return sorted(scored, key=lambda word: (-scored[word], word))[:most]


def senses(
    bert: LoadedModel,
    word: str,
    texts: Sequence[str],
    *,
    depth: int | None = None,
    groups: int | None = None,
    most: int = 1000,
    seed: int = 0,
) -> Senses:
    """Group the occurrences of a word by their vectors.

    By default the depth is three quarters of the blocks, and the number of groups the one with the
    highest silhouette score. If there are more than `most` occurrences, a random sample is used.
    """
    places = find(word, texts)
    if len(places) > most:
        kept = np.random.default_rng(seed).choice(len(places), most, replace=False)
        places = [places[number] for number in sorted(kept)]
    if len(places) < 2:
        raise BertsmithError(f"{word!r} occurs {len(places)} times in these texts: too few")
    last = all_depths(bert)[-1]
    chosen = round(0.75 * last) if depth is None else check_depth(bert, depth)
    if groups is not None and not 1 <= groups <= len(places):
        raise BertsmithError(f"{len(places)} occurrences cannot form {groups} groups")
    states = vectors(bert, places)
    own, apart = clusters(states[chosen], groups, seed)
    return Senses(word, places, chosen, states[chosen], own, [_alike(x) for x in states], apart)


def _alike(states: Floats) -> float:
    total = float(np.square(unit_vectors(states).sum(0)).sum())
    return (total - len(states)) / (len(states) * (len(states) - 1))


@dataclass(frozen=True)
class SensePair:
    """Two occurrences of a word, and whether they have the same sense."""

    first: Occurrence
    second: Occurrence
    same: bool


def read_pairs(lines: Sequence[str], name: str = "file") -> list[SensePair]:
    """Read lines of word, sentence, sentence, and T or F, separated by tabs."""
    pairs = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        fields = line.split("\t")
        if len(fields) != 4 or fields[3].strip().upper() not in ("T", "F", "1", "0"):
            raise BertsmithError(f"{name}, line {number}: expected word, two sentences, T or F")
        both = [find(fields[0], [text], 1) for text in fields[1:3]]
        if not all(both):
            raise BertsmithError(f"{name}, line {number}: {fields[0]!r} is not in both sentences")
        pairs.append(SensePair(both[0][0], both[1][0], fields[3].strip().upper() in ("T", "1")))
    return pairs


def same_sense(bert: LoadedModel, pairs: Sequence[SensePair], seed: int = 0) -> list[float]:
    """Return the accuracy of the cosine for the same sense at every depth, in five folds."""
    if len(pairs) < 2 * FOLDS:
        raise BertsmithError(f"{len(pairs)} pairs are too few: give {2 * FOLDS} or more")
    states = vectors(bert, [one.first for one in pairs] + [one.second for one in pairs])
    gold = np.array([pair.same for pair in pairs])
    fold = np.random.default_rng(seed).permutation(len(pairs)) % FOLDS
    scores = []
    for layer in states:
        cosines = (unit_vectors(layer[: len(pairs)]) * unit_vectors(layer[len(pairs) :])).sum(1)
        correct = 0
        for number in range(FOLDS):
            learn, judge = fold != number, fold == number
            threshold = _threshold(cosines[learn], gold[learn])
            correct += int(((cosines[judge] >= threshold) == gold[judge]).sum())
        scores.append(correct / len(pairs))
    return scores


def _threshold(near: Floats, same: NDArray[np.bool_]) -> float:
    """The value that parts true from false best: halfway between two neighbours."""
    order = np.argsort(near)
    values, truth = near[order], same[order]
    # With the cut before place k: the false before it and the true from it on are right.
    right = np.concatenate([[0], np.cumsum(~truth)]) + np.concatenate(
        [np.cumsum(truth[::-1])[::-1], [0]]
    )
    best = int(right.argmax())
    if best in (0, len(values)):
        return float(values[0] - 1 if best == 0 else values[-1] + 1)
    return float((values[best - 1] + values[best]) / 2)


def projector(result: Senses, folder: Path) -> None:
    """Write files that `tensorboard --logdir FOLDER` shows as a point cloud."""
    texts = [" ".join(place.around(70).split()) for place in result.places]
    rows = [f"{group + 1}\t{text}" for group, text in zip(result.groups, texts, strict=True)]
    config = (
        'embeddings {\n  tensor_name: "senses"\n  tensor_path: "vectors.tsv"\n'
        '  metadata_path: "metadata.tsv"\n}\n'
    )
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with atomic(folder / "vectors.tsv") as stream:
        np.savetxt(stream, result.vectors, fmt="%.6g", delimiter="\t")
    write_text(folder / "metadata.tsv", "\n".join(["group\ttext", *rows]) + "\n")
    write_text(folder / "projector_config.pbtxt", config)


# ------------------------------------------------------------------ groups of vectors


TRIES = 10  # starts of k-means, of which the best is kept
MOST = 6  # groups that are looked for
CLEAR = 0.15  # groups with a lower silhouette score are one


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

    directions = unit_vectors(vectors - vectors.mean(0))
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
