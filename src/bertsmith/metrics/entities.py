"""Entity F1 as published NER numbers have it: an entity counts if type and both ends are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bertsmith.data.schemes import chunks, strict_chunks
from bertsmith.errors import BertsmithError
from bertsmith.metrics.labels import Score, paired, score


@dataclass(frozen=True)
class EntityScores:
    """The score of all entities together, of each type, and of the words' tags."""

    overall: Score  # micro: the number that papers report
    types: dict[str, Score]
    accuracy: float  # of tags

    @property
    def macro_f1(self) -> float:
        """The mean of the types' F1."""
        scores = [one.f1 for one in self.types.values()]
        return sum(scores) / len(scores) if scores else 0.0


def entity_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], strict: str | None = None
) -> EntityScores:
    """Score tagged sentences as conlleval and seqeval do.

    Tags are read with goodwill (an I- may begin an entity); with `strict`, the name of a scheme,
    only entities that are spelled without a fault count, as in seqeval's strict mode.
    """
    paired(gold, predicted)
    right: Counter[str] = Counter()
    found: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    words = same = 0
    for number, (one, other) in enumerate(zip(gold, predicted, strict=True)):
        if len(one) != len(other):
            raise BertsmithError(
                f"sentence {number}: {len(other)} predicted tags for {len(one)} words"
            )
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
