"""Entity F1, as conlleval and seqeval compute it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bertsmith.data.schemes import chunks, strict_chunks
from bertsmith.errors import BertsmithError
from bertsmith.metrics.labels import Score, Scorer, Weights, paired, score


@dataclass(frozen=True)
class EntityScores:
    """The score of all entities, of each type, and of the tags of words."""

    overall: Score  # micro: the number that papers report
    types: dict[str, Score]
    accuracy: float  # of tags

    @property
    def macro_f1(self) -> float:
        """The mean F1 over types."""
        scores = [one.f1 for one in self.types.values()]
        return sum(scores) / len(scores) if scores else 0.0


def tag_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], spelled: bool
) -> Scorer:
    """Accuracy of tags, and where they spell entities F1, precision and recall of those.

    A function of how often sentences count.
    """
    paired(gold, predicted)
    rows = np.array([_counts(*pair) for pair in _pairs(gold, predicted)], dtype=np.float64)

    def scores(weights: Weights | None = None) -> dict[str, float]:
        counts = np.ones(len(rows)) if weights is None else weights
        right, found, wanted, words, same = (counts @ rows).tolist()
        accuracy = {"accuracy": same / words if words else 0.0}
        if not spelled:
            return accuracy
        whole = score(right, found, wanted)
        entities = {"f1": whole.f1, "precision": whole.precision, "recall": whole.recall}
        return {**entities, **accuracy}

    return scores


def _counts(one: Sequence[str], other: Sequence[str]) -> tuple[int, int, int, int, int]:
    """Entities that are right, predicted and labelled; words, and those whose tag is right."""
    true, seen = set(chunks(one)), set(chunks(other))
    same = sum(a == b for a, b in zip(one, other, strict=True))
    return len(true & seen), len(seen), len(true), len(one), same


def _pairs(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """The tags of each sentence, labelled and predicted, which must be equally many."""
    for number, (one, other) in enumerate(zip(gold, predicted, strict=True)):
        if len(one) != len(other):
            raise BertsmithError(
                f"sentence {number}: {len(other)} predicted tags for {len(one)} words"
            )
        yield one, other


def entity_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], strict: str | None = None
) -> EntityScores:
    """Score tagged sentences as conlleval and seqeval do.

    Tags are read leniently (an I- may start an entity). With `strict`, the name of a scheme, only
    entities that are tagged without a mistake count, as in seqeval's strict mode.
    """
    paired(gold, predicted)
    right: Counter[str] = Counter()
    found: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    words = same = 0
    for one, other in _pairs(gold, predicted):
        true, seen = (
            set(strict_chunks(tags, strict) if strict else chunks(tags)) for tags in (one, other)
        )
        right.update(chunk.type for chunk in true & seen)
        found.update(chunk.type for chunk in seen)
        wanted.update(chunk.type for chunk in true)
        words += len(one)
        same += sum(a == b for a, b in zip(one, other, strict=True))
    names = sorted(found.keys() | wanted.keys())
    return EntityScores(
        score(right.total(), found.total(), wanted.total()),
        {name: score(right[name], found[name], wanted[name]) for name in names},
        same / words if words else 0.0,
    )
