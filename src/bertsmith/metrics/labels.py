"""Scores of labels: accuracy, precision, recall, F1, Matthews correlation, the confusion matrix."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertsmith.errors import BertsmithError

Label = Any  # a name, or a number: what can be equal
Counts = NDArray[np.int64]
Weights = NDArray[np.float64]  # how often each example counts
# Scores of examples by their weights; None: each counts once. Bootstrap intervals draw weights, so
# that statistics of single examples are computed only once.
Scorer = Callable[[Weights | None], dict[str, float]]


@dataclass(frozen=True)
class Score:
    """How well one label was found; what cannot be computed is 0."""

    precision: float
    recall: float
    f1: float
    support: int  # how often it is right


def accuracy(gold: Sequence[Label], predicted: Sequence[Label]) -> float:
    """Return the fraction of correct predictions."""
    paired(gold, predicted)
    return sum(bool(g == p) for g, p in zip(gold, predicted, strict=True)) / len(gold)


def confusion(
    gold: Sequence[Label], predicted: Sequence[Label], labels: Sequence[Label] | None = None
) -> Counts:
    """Return counts with labels as rows and predictions as columns, in the order of `labels`."""
    paired(gold, predicted)
    names = known(gold, predicted) if labels is None else list(labels)
    place = {name: number for number, name in enumerate(names)}
    missing = {name for name in (*gold, *predicted) if name not in place}
    if missing:
        raise BertsmithError(f"{min(map(str, missing))!r} is not among the labels")
    table = np.zeros((len(names), len(names)), dtype=np.int64)
    rows, columns = [place[name] for name in gold], [place[name] for name in predicted]
    np.add.at(table, (rows, columns), 1)
    return table


def per_label(gold: Sequence[Label], predicted: Sequence[Label]) -> dict[Label, Score]:
    """Return the score of every label that occurs in the labels or the predictions."""
    paired(gold, predicted)
    right = Counter(g for g, p in zip(gold, predicted, strict=True) if g == p)
    guessed, wanted = Counter(predicted), Counter(gold)
    return {n: score(right[n], guessed[n], wanted[n]) for n in known(gold, predicted)}


def f1(
    gold: Sequence[Label],
    predicted: Sequence[Label],
    average: str = "macro",
    positive: Label | None = None,
) -> float:
    """F1: macro (mean over labels), micro, weighted (by support), or binary (of `positive`)."""
    if average == "binary":
        if positive is None:
            raise BertsmithError("binary F1 needs the positive label")
        return label_scores(gold, predicted, positive)(None)["f1"]
    if average == "micro":  # every label that is wrong is one too many and one too few
        return accuracy(gold, predicted)
    return _mean(per_label(gold, predicted).values(), average)


def mcc(gold: Sequence[Label], predicted: Sequence[Label]) -> float:
    """Matthews correlation coefficient for any number of labels; 0 if either side is constant."""
    return label_scores(gold, predicted)(None)["mcc"]


def label_scores(
    gold: Sequence[Label], predicted: Sequence[Label], positive: Label | None = None
) -> Scorer:
    """Accuracy, macro F1, MCC, and F1 of `positive`, as a function of how often examples count."""
    paired(gold, predicted)
    names = known(gold, predicted)
    place = {name: number for number, name in enumerate(names)}
    size, counted = len(names), place.get(positive)
    labels, guesses = (np.array([place[x] for x in side], np.int64) for side in (gold, predicted))
    same = labels == guesses

    def scores(weights: Weights | None = None) -> dict[str, float]:
        # Counts of each label, never of each pair of labels: there may be thousands.
        counts = np.ones(len(labels)) if weights is None else weights
        right = np.bincount(labels, counts * same, size)
        sides = (guesses, labels)
        guessed, wanted = (np.bincount(x, counts, size).astype(np.float64) for x in sides)
        both = guessed + wanted
        each = np.divide(2 * right, both, out=np.zeros(size), where=both > 0)
        result = {
            "accuracy": float(right.sum() / counts.sum()),
            "macro_f1": float(each[both > 0].mean()),
            "mcc": _mcc(float(right.sum()), guessed, wanted),
        }
        if positive is not None:
            result["f1"] = 0.0 if counted is None else float(each[counted])
        return result

    return scores


def weighted_mean(values: ArrayLike, weights: Weights | None) -> float:
    """The mean of one value for each example."""
    return float(np.average(np.asarray(values, dtype=np.float64), weights=weights))


def mean_scores(**values: ArrayLike) -> Scorer:
    """Means of values of single examples, by how often these count."""
    each = {name: np.asarray(one, dtype=np.float64) for name, one in values.items()}
    return lambda weights: {name: weighted_mean(one, weights) for name, one in each.items()}


def _mcc(right: float, guessed: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
    total = guessed.sum()
    covariance = right * total - guessed @ wanted
    spread = (total**2 - guessed @ guessed) * (total**2 - wanted @ wanted)
    return float(covariance / math.sqrt(spread)) if spread > 0 else 0.0


def multilabel_f1(
    gold: Sequence[Collection[Label]],
    predicted: Sequence[Collection[Label]],
    average: str = "micro",
) -> float:
    """F1 of sets of labels: micro, macro, weighted, or samples (mean over examples)."""
    if average == "samples":
        paired(gold, predicted)
        rows = [(set(g), set(p)) for g, p in zip(gold, predicted, strict=True)]
        return sum(score(len(g & p), len(p), len(g)).f1 for g, p in rows) / len(rows)
    if average == "micro":
        return multilabel_scores(gold, predicted)(None)["micro_f1"]
    return _mean(multilabel_per_label(gold, predicted).values(), average)


def multilabel_scores(
    gold: Sequence[Collection[Label]], predicted: Sequence[Collection[Label]]
) -> Scorer:
    """Exact match, micro and macro F1 of sets of labels, by how often examples count."""
    _, wanted, guessed = _flags(gold, predicted)
    exact = (wanted == guessed).all(1).astype(np.float64)

    def scores(weights: Weights | None = None) -> dict[str, float]:
        counts = np.ones(len(exact)) if weights is None else weights
        right = counts @ (wanted & guessed)
        both = counts @ wanted + counts @ guessed
        each = np.divide(2 * right, both, out=np.zeros(len(both)), where=both > 0)
        return {
            "exact": float(counts @ exact / counts.sum()),
            "micro_f1": float(2 * right.sum() / both.sum()) if both.sum() else 0.0,
            "macro_f1": float(each[both > 0].mean()) if (both > 0).any() else 0.0,
        }

    return scores


def multilabel_per_label(
    gold: Sequence[Collection[Label]], predicted: Sequence[Collection[Label]]
) -> dict[Label, Score]:
    """The score of every label that is right or predicted somewhere."""
    names, wanted, guessed = _flags(gold, predicted)
    counts = zip((wanted & guessed).sum(0), guessed.sum(0), wanted.sum(0), strict=True)
    return {name: score(*map(int, row)) for name, row in zip(names, counts, strict=True)}


def _flags(
    gold: Sequence[Collection[Label]], predicted: Sequence[Collection[Label]]
) -> tuple[list[Label], NDArray[np.bool_], NDArray[np.bool_]]:
    """All labels, and which of them are right and predicted, two (examples, labels)."""
    paired(gold, predicted)
    names = known([n for one in gold for n in one], [n for one in predicted for n in one])
    place = {name: number for number, name in enumerate(names)}
    flags = np.zeros((2, len(gold), len(names)), dtype=np.bool_)
    for side, examples in enumerate((gold, predicted)):
        for row, labels in enumerate(examples):
            flags[side, row, [place[name] for name in labels]] = True
    return names, flags[0], flags[1]


def exact_match(gold: Sequence[Collection[Label]], predicted: Sequence[Collection[Label]]) -> float:
    """Return the fraction of examples whose set of labels is predicted exactly."""
    return multilabel_scores(gold, predicted)(None)["exact"]


def score(right: float, guessed: float, wanted: float) -> Score:
    """Precision, recall and F1 of counts."""
    precision = right / guessed if guessed else 0.0
    recall = right / wanted if wanted else 0.0
    both = guessed + wanted
    return Score(precision, recall, 2 * right / both if both else 0.0, int(wanted))


def known(gold: Sequence[Label], predicted: Sequence[Label]) -> list[Label]:
    """All labels of both sides: numbers by value, others by name."""
    names = {*gold, *predicted}
    try:
        return sorted(names)
    except TypeError:  # of mixed kinds
        return sorted(names, key=str)


def _mean(scores: Collection[Score], average: str) -> float:
    if average == "macro":
        return sum(one.f1 for one in scores) / len(scores) if scores else 0.0
    if average == "weighted":
        total = sum(one.support for one in scores)
        return sum(one.f1 * one.support for one in scores) / total if total else 0.0
    raise BertsmithError(f"unknown average {average!r}; known: binary, micro, macro, weighted")


def paired(gold: Sequence[Any], predicted: Sequence[Any]) -> None:
    """Refuse predictions that are not one for each gold example: all gold counts."""
    if len(gold) != len(predicted):
        raise BertsmithError(f"{len(predicted):,} predictions for {len(gold):,} gold examples")
    if not len(gold):
        raise BertsmithError("no examples to score")
