"""Answers by SQuAD's rules: exact match and F1, and the best threshold for "no answer"."""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from bertsmith.errors import BertsmithError
from bertsmith.metrics.labels import Scorer, mean_scores, paired

PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")
Gold = Mapping[str, Sequence[str]]  # question → its gold answers; none where it has no answer


@dataclass(frozen=True)
class Threshold:
    """Above this probability of "no answer" none is given; and the score in percent it leads to."""

    value: float
    score: float


@dataclass(frozen=True)
class AnswerScores:
    """Percentages over all gold questions; a question without a prediction counts as wrong."""

    exact: float
    f1: float
    count: int
    missing: int  # questions for which there was no prediction
    answerable: tuple[float, float, int] | None  # exact, F1 and count of those with an answer
    impossible: tuple[float, float, int] | None  # and of those without


def normalised(text: str) -> str:
    """Small letters, no punctuation, no articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact(gold: str, predicted: str) -> float:
    """1 if the normalised answers are equal."""
    return float(normalised(gold) == normalised(predicted))


def overlap(gold: str, predicted: str, version: int = 2) -> float:
    """F1 of the words. Where one has none, version 2 compares; version 1 (of v1.1) says 0."""
    wanted, guessed = normalised(gold).split(), normalised(predicted).split()
    if version == 2 and not (wanted and guessed):
        return float(wanted == guessed)
    common = (Counter(wanted) & Counter(guessed)).total()
    return 2 * common / (len(wanted) + len(guessed)) if common else 0.0


def raw_scores(
    gold: Gold, predicted: Mapping[str, str], version: int = 2
) -> tuple[dict[str, float], dict[str, float]]:
    """Exact match and F1 of every gold question: of its gold answers the one that fits best."""
    unknown = predicted.keys() - gold.keys()
    if unknown:
        raise BertsmithError(f"a prediction for {min(unknown)!r}, which is not a gold question")
    exacts, overlaps = {}, {}
    for name, answers in gold.items():
        wanted = [text for text in answers if version == 1 or normalised(text)] or [""]
        exacts[name] = overlaps[name] = 0.0
        if (prediction := predicted.get(name)) is not None:
            exacts[name] = max(exact(text, prediction) for text in wanted)
            overlaps[name] = max(overlap(text, prediction, version) for text in wanted)
    return exacts, overlaps


def question_scores(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> Scorer:
    """Exact match and F1, 0 to 1: as in SQuAD v2.0 if a question has no answer, else v1.1."""
    paired(gold, predicted)
    version = 2 if any(not answers for answers in gold) else 1
    names = list(map(str, range(len(gold))))
    labels, answers = dict(zip(names, gold, strict=True)), dict(zip(names, predicted, strict=True))
    exacts, overlaps = raw_scores(labels, answers, version)
    return mean_scores(exact=[*exacts.values()], f1=[*overlaps.values()])


def answer_overlap(gold: Sequence[str], predicted: str) -> float:
    """F1 of the words of one answer, with the labelled answer that fits best."""
    return raw_scores({"": gold}, {"": predicted})[1][""]


def answer_scores(
    gold: Gold,
    predicted: Mapping[str, str],
    *,
    no_answer: Mapping[str, float] | None = None,
    threshold: float = 1.0,
    version: int = 2,
) -> AnswerScores:
    """Score answers by the rules of SQuAD v2.0 (version 2) or v1.1 (version 1).

    If `no_answer` gives a question a higher probability than the threshold, its prediction counts
    as "no answer".
    """
    if not gold:
        raise BertsmithError("no examples to score")
    exacts, overlaps = raw_scores(gold, predicted, version)
    for name, chance in (no_answer or {}).items():
        if chance > threshold and name in predicted:
            exacts[name] = overlaps[name] = float(not gold[name])

    def percent(names: list[str]) -> tuple[float, float, int] | None:
        if not names:
            return None
        sums = (sum(scores[name] for name in names) for scores in (exacts, overlaps))
        match, words = (100 * total / len(names) for total in sums)
        return match, words, len(names)

    everything = percent(list(gold))
    assert everything is not None  # gold is not empty
    return AnswerScores(
        *everything,
        missing=len(gold.keys() - predicted.keys()),
        answerable=percent([name for name, answers in gold.items() if answers]),
        impossible=percent([name for name, answers in gold.items() if not answers]),
    )


def best_threshold(
    gold: Gold, predicted: Mapping[str, str], no_answer: Mapping[str, float], by: str = "f1"
) -> Threshold:
    """Return the threshold with the best exact match or F1, as computed by SQuAD v2.0's script.

    `predicted` contains the best answers that are not empty. Questions with equal probabilities
    stay on the same side of the threshold, so that the reported score can be reached.
    """
    missing = gold.keys() - no_answer.keys()
    if missing:
        raise BertsmithError(f"there is no probability of no answer for {min(missing)!r}")
    if by not in ("exact", "f1"):
        raise BertsmithError(f'by must be "exact" or "f1", not {by!r}')
    scores = raw_scores(gold, predicted)[by == "f1"]

    def gain(name: str) -> float:
        """The change of the total score when this question is answered."""
        if gold[name]:
            return scores[name]
        return -1.0 if predicted.get(name) else 0.0

    # At first no question is answered, so that all without an answer are right.
    current = best = float(sum(not answers for answers in gold.values()))
    value = 0.0
    probability: Callable[[str], float] = no_answer.__getitem__
    for limit, names in groupby(sorted(gold, key=probability), key=probability):
        current += sum(map(gain, names))
        if current > best:
            best, value = current, limit
    return Threshold(value, 100 * best / len(gold))
