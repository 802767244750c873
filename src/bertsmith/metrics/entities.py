"""Entity F1, as conlleval and seqeval compute it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bertsmith.errors import BertsmithError
from bertsmith.metrics.labels import Score, Scorer, Weights, paired, score
from bertsmith.metrics.schemes import chunks, strict_chunks

Spans = set[tuple[int, int, str]]  # start, end and type of every entity of a text


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
    """Accuracy of tags; if they spell entities, also F1, precision and recall of those."""
    paired(gold, predicted)
    rows = np.array([_counts(*pair) for pair in _pairs(gold, predicted)], dtype=np.float64)

    def scores(weights: Weights | None = None) -> dict[str, float]:
        counts = np.ones(len(rows)) if weights is None else weights
        right, guessed, wanted, words, same = (counts @ rows).tolist()
        accuracy = {"accuracy": same / words if words else 0.0}
        if not spelled:
            return accuracy
        return {**_named(score(right, guessed, wanted)), **accuracy}

    return scores


def span_scores(gold: Sequence[Spans], predicted: Sequence[Spans]) -> Scorer:
    """F1, precision and recall of entities that are given by their characters."""
    paired(gold, predicted)
    pairs = zip(gold, predicted, strict=True)
    rows = np.array([(len(a & b), len(b), len(a)) for a, b in pairs], dtype=np.float64)

    def scores(weights: Weights | None = None) -> dict[str, float]:
        counts = np.ones(len(rows)) if weights is None else weights
        return _named(score(*(counts @ rows).tolist()))

    return scores


def _named(one: Score) -> dict[str, float]:
    return {"f1": one.f1, "precision": one.precision, "recall": one.recall}


def _counts(gold: Sequence[str], predicted: Sequence[str]) -> tuple[int, int, int, int, int]:
    """Entities that are right, predicted and labelled; words, and those whose tag is right."""
    true, seen = set(chunks(gold)), set(chunks(predicted))
    same = sum(a == b for a, b in zip(gold, predicted, strict=True))
    return len(true & seen), len(seen), len(true), len(gold), same


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
    pairs = list(_pairs(gold, predicted))

    def spans(tags: Sequence[str]) -> Spans:
        entities = strict_chunks(tags, strict) if strict else chunks(tags)
        return {(one.start, one.stop, one.type) for one in entities}

    right = [a == b for pair in pairs for a, b in zip(*pair, strict=True)]
    scores = type_scores([spans(tags) for tags, _ in pairs], [spans(tags) for _, tags in pairs])
    return EntityScores(*scores, sum(right) / len(right) if right else 0.0)


def type_scores(
    gold: Sequence[Spans], predicted: Sequence[Spans]
) -> tuple[Score, dict[str, Score]]:
    """The score of all entities, and of each type."""
    right, guessed, wanted = Counter[str](), Counter[str](), Counter[str]()
    for true, seen in zip(gold, predicted, strict=True):
        right.update(label for _, _, label in true & seen)
        guessed.update(label for _, _, label in seen)
        wanted.update(label for _, _, label in true)
    names = sorted(guessed.keys() | wanted.keys())
    overall = score(right.total(), guessed.total(), wanted.total())
    return overall, {name: score(right[name], guessed[name], wanted[name]) for name in names}
