"""The scores that each task is judged by, over all gold examples of a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bertsmith.data import Dataset, Question, Related, has_gold
from bertsmith.errors import BertsmithError
from bertsmith.metrics.answers import answer_scores
from bertsmith.metrics.entities import entity_scores
from bertsmith.metrics.labels import accuracy, exact_match, f1, mcc, multilabel_f1, paired
from bertsmith.metrics.numbers import mean_squared_error, pearson, spearman


def score(
    dataset: Dataset[Any], predicted: Sequence[Any], positive: str | None = None
) -> dict[str, float]:
    """Score one prediction for each example, in the order of the file; from 0 to 1.

    A prediction is a label, a collection of labels, a number, a tag for each word, an answer's
    text or the index of a choice. `positive` asks for the F1 of that label.
    """
    paired(dataset.examples, predicted)
    rows = [
        (example, one)
        for example, one in zip(dataset.examples, predicted, strict=True)
        if has_gold(example) and not isinstance(example, Related)
    ]
    if not rows:
        raise BertsmithError(f"{dataset.path} does not say what is right: nothing to score")
    examples, found = [example for example, _ in rows], [one for _, one in rows]
    match dataset.task:
        case "classification":
            scores = _labels([example.label for example in examples], found, positive)
        case "multilabel":
            gold = [example.labels for example in examples]
            scores = {"exact": exact_match(gold, found)} | {
                f"{average}_f1": multilabel_f1(gold, found, average)
                for average in ("micro", "macro")
            }
        case "tagging":
            scores = _tags([example.tags for example in examples], found, dataset.scheme)
        case "answering":
            scores = _answers(examples, found)
        case "choice":
            scores = {"accuracy": accuracy([example.label for example in examples], found)}
        case _:
            scores = _numbers([example.score for example in examples], found)
    return {"count": float(len(rows)), **scores}


def _labels(gold: list[str], found: list[str], positive: str | None) -> dict[str, float]:
    scores = {
        "accuracy": accuracy(gold, found),
        "macro_f1": f1(gold, found),
        "mcc": mcc(gold, found),
    }
    if positive is not None:
        scores["f1"] = f1(gold, found, "binary", positive)
    return scores


def _tags(gold: list[Any], found: list[Any], scheme: str | None) -> dict[str, float]:
    scores = entity_scores(gold, found)
    if scheme is None:  # parts of speech and the like
        return {"accuracy": scores.accuracy}
    whole = scores.overall
    return {
        "f1": whole.f1,
        "precision": whole.precision,
        "recall": whole.recall,
        "accuracy": scores.accuracy,
    }


def _answers(examples: list[Question], found: list[str]) -> dict[str, float]:
    gold = {one.id: [span.text for span in one.answers or ()] for one in examples}
    if len(gold) != len(examples):
        raise BertsmithError("two questions have the same id, so that one would go unscored")
    version = 2 if any(not answers for answers in gold.values()) else 1
    predicted = dict(zip(gold, found, strict=True))
    scores = answer_scores(gold, predicted, version=version)
    return {"exact": scores.exact / 100, "f1": scores.f1 / 100}


def _numbers(gold: list[float], found: list[float]) -> dict[str, float]:
    both = {"pearson": pearson(gold, found), "spearman": spearman(gold, found)}
    known = {name: 0.0 if math.isnan(value) else value for name, value in both.items()}
    return {**known, "mean_squared_error": mean_squared_error(gold, found)}
