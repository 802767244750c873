"""Scores of labels: accuracy, precision, recall, F1, Matthews correlation, the confusion matrix."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import BertsmithError

Label = Any  # a name, or a number: what can be equal
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Score:
    """How well one label was found; what cannot be computed is 0."""

    precision: float
    recall: float
    f1: float
    support: int  # how often it is right


def accuracy(gold: Sequence[Label], predicted: Sequence[Label]) -> float:
    """The share that is right."""
    paired(gold, predicted)
    return sum(map(_same, gold, predicted)) / len(gold)


def confusion(
    gold: Sequence[Label], predicted: Sequence[Label], labels: Sequence[Label] | None = None
) -> Counts:
    """How often each label (a row) was taken for each (a column), in the order of `labels`."""
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
    """The score of every label that is right or predicted somewhere."""
    table = confusion(gold, predicted)
    right, found, wanted = table.diagonal(), table.sum(0), table.sum(1)
    names = known(gold, predicted)
    counts = zip(right.tolist(), found.tolist(), wanted.tolist(), strict=True)
    return {name: score(*row) for name, row in zip(names, counts, strict=True)}


def f1(
    gold: Sequence[Label],
    predicted: Sequence[Label],
    average: str = "macro",
    positive: Label | None = None,
) -> float:
    """F1: macro (mean over labels), micro, weighted (by support), or binary (of `positive`)."""
    if average == "binary":
        if positive is None:
            raise BertsmithError("binary F1 needs to know which label is the positive one")
        paired(gold, predicted)
        right = sum(g == positive == p for g, p in zip(gold, predicted, strict=True))
        found, wanted = (sum(x == positive for x in side) for side in (predicted, gold))
        return score(right, found, wanted).f1
    if average == "micro":  # every label that is wrong is one too many and one too few
        return accuracy(gold, predicted)
    return _mean(list(per_label(gold, predicted).values()), average)


def mcc(gold: Sequence[Label], predicted: Sequence[Label]) -> float:
    """Matthews' correlation for any number of labels; 0 where either side is constant."""
    table = confusion(gold, predicted).astype(np.float64)
    found, wanted, total = table.sum(0), table.sum(1), table.sum()
    covariance = table.trace() * total - found @ wanted
    spread = (total**2 - found @ found) * (total**2 - wanted @ wanted)
    return float(covariance / math.sqrt(spread)) if spread > 0 else 0.0


# ------------------------------------------------------------------ several labels


def multilabel_f1(
    gold: Sequence[Collection[Label]],
    predicted: Sequence[Collection[Label]],
    average: str = "micro",
) -> float:
    """F1 of sets of labels: micro, macro, weighted, or samples (mean over examples)."""
    paired(gold, predicted)
    rows = [(set(g), set(p)) for g, p in zip(gold, predicted, strict=True)]
    if average == "samples":
        scores = [score(len(g & p), len(p), len(g)).f1 for g, p in rows]
        return sum(scores) / len(scores)
    names = sorted({name for g, p in rows for name in g | p}, key=str)
    counts = [
        (
            sum(n in g & p for g, p in rows),
            sum(n in p for _, p in rows),
            sum(n in g for g, _ in rows),
        )
        for n in names
    ]
    if average == "micro":
        return score(*(sum(row[side] for row in counts) for side in range(3))).f1
    return _mean([score(*row) for row in counts], average)


def exact_match(gold: Sequence[Collection[Label]], predicted: Sequence[Collection[Label]]) -> float:
    """The share of examples whose labels are all right and none too many."""
    paired(gold, predicted)
    pairs = zip(gold, predicted, strict=True)
    return sum(set(g) == set(p) for g, p in pairs) / len(gold)


# ------------------------------------------------------------------ shared


def score(right: int, found: int, wanted: int) -> Score:
    """Precision, recall and F1 of counts."""
    precision = right / found if found else 0.0
    recall = right / wanted if wanted else 0.0
    both = found + wanted
    return Score(precision, recall, 2 * right / both if both else 0.0, wanted)


def known(gold: Sequence[Label], predicted: Sequence[Label]) -> list[Label]:
    """All labels of both sides: numbers by value, others by name."""
    names = {*gold, *predicted}
    try:
        return sorted(names)
    except TypeError:  # of mixed kinds
        return sorted(names, key=str)


def _mean(scores: Sequence[Score], average: str) -> float:
    if average == "macro":
        return sum(one.f1 for one in scores) / len(scores) if scores else 0.0
    if average == "weighted":
        total = sum(one.support for one in scores)
        return sum(one.f1 * one.support for one in scores) / total if total else 0.0
    raise BertsmithError(f"unknown average {average!r}; known: binary, micro, macro, weighted")


def _same(one: Label, other: Label) -> bool:
    return bool(one == other)


def paired(gold: Sequence[Any], predicted: Sequence[Any]) -> None:
    """Refuse predictions that are not one for each gold example: all gold counts."""
    if len(gold) != len(predicted):
        raise BertsmithError(f"{len(predicted):,} predictions for {len(gold):,} gold examples")
    if not len(gold):
        raise BertsmithError("there is nothing to score")
