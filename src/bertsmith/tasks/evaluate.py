"""Scores of a model on a file, over all gold; and whether one of two models is better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bertsmith.data import Dataset, Related
from bertsmith.errors import BertsmithError
from bertsmith.metrics import Comparison, bootstrap, calibration, paired_bootstrap
from bertsmith.metrics.answers import raw_scores
from bertsmith.tasks.embedding import embed
from bertsmith.tasks.loaded import LoadedModel
from bertsmith.tasks.predict import Prediction, predict, task_of
from bertsmith.tasks.score import score

POSITIVE = ("1", "true", "yes", "positive", "pos", "entailment", "duplicate", "equivalent")


@dataclass(frozen=True)
class Evaluation:
    """A data set, what a model said of it, and how good that is."""

    dataset: Dataset[Any]  # examples with gold only
    predictions: list[Prediction]
    scores: dict[str, float]
    notes: list[str] = field(default_factory=list)

    def right(self) -> list[float]:
        """How right each prediction is, from 0 to 1."""
        pairs = zip(self.dataset.examples, self.predictions, strict=True)
        return [rightness(example, one.value) for example, one in pairs]


def main_metric(dataset: Dataset[Any]) -> str:
    """The score that a task is judged by, where nobody says which."""
    if dataset.task == "tagging":
        return "f1" if dataset.scheme else "accuracy"
    if dataset.task == "similarity":
        return "accuracy_at_1" if isinstance(dataset.examples[0], Related) else "spearman"
    return {
        "classification": "accuracy",
        "multilabel": "micro_f1",
        "regression": "pearson",
        "answering": "f1",
        "choice": "accuracy",
    }[dataset.task]


def metrics_of(dataset: Dataset[Any]) -> tuple[str, ...]:
    """The scores of a task that are the better the higher they are."""
    if dataset.task == "tagging":
        return ("f1", "precision", "recall", "accuracy") if dataset.scheme else ("accuracy",)
    if dataset.task == "similarity" and isinstance(dataset.examples[0], Related):
        return "accuracy_at_1", "mean_reciprocal_rank"
    binary = ("f1",) if len(dataset.labels) == 2 else ()
    return {
        "classification": ("accuracy", "macro_f1", "mcc", *binary),
        "multilabel": ("exact", "micro_f1", "macro_f1"),
        "regression": ("pearson", "spearman"),
        "similarity": ("pearson", "spearman"),
        "answering": ("exact", "f1"),
        "choice": ("accuracy",),
    }[dataset.task]


def evaluate(bert: LoadedModel, dataset: Dataset[Any]) -> Evaluation:
    """Score a model on every example of which the file says what is right."""
    dataset = with_gold(dataset)
    known = task_of(bert)
    if known != dataset.task and not (known == "similarity" and dataset.task == "regression"):
        raise BertsmithError(f"{dataset.path} is for {dataset.task}, but the model is for {known}")
    return scored(bert, dataset, predict(bert, dataset.examples))


def with_gold(dataset: Dataset[Any]) -> Dataset[Any]:
    """The examples that can be scored."""
    examples = dataset.gold()
    if not examples:
        raise BertsmithError(f"{dataset.path} does not say what is right: nothing to score")
    return replace(dataset, examples=examples)


def scored(bert: LoadedModel, dataset: Dataset[Any], predictions: list[Prediction]) -> Evaluation:
    """Predictions with their scores."""
    values, notes = [one.value for one in predictions], []
    if isinstance(dataset.examples[0], Related):
        return Evaluation(dataset, predictions, retrieval(bert, dataset.examples))
    positive = None
    if dataset.task == "classification":
        labels = bert.checkpoint.labels
        positive = _positive(labels)
        if positive is not None:
            notes.append(f"f1 is that of the label {positive!r}")
        strange = set(dataset.labels) - set(labels)
        if strange:
            count = sum(example.label in strange for example in dataset.examples)
            named = ", ".join(sorted(strange)[:5])
            notes.append(f"{count} examples have labels the model does not know: {named}")
    scores = score(dataset, values, positive)
    if dataset.task == "similarity":
        del scores["mean_squared_error"]  # a cosine has another unit than the file's scores
    if dataset.task in ("classification", "choice"):
        right = [value == gold(e) for value, e in zip(values, dataset.examples, strict=True)]
        sure = [min(1.0, max(0.0, one.confidence)) for one in predictions]
        scores["calibration_error"] = calibration(sure, right).expected
    return Evaluation(dataset, predictions, scores, notes)


def retrieval(bert: LoadedModel, examples: Sequence[Related]) -> dict[str, float]:
    """How often a text finds its partner among all partners of the file, and how high."""
    firsts = embed(bert, [one.anchor for one in examples], normalise=True)
    partners = list(dict.fromkeys(one.positive for one in examples))
    place = {text: number for number, text in enumerate(partners)}
    others = embed(bert, partners, normalise=True)
    ranks = []
    for start in range(0, len(examples), 1024):
        near = firsts[start : start + 1024] @ others.T
        own = [place[one.positive] for one in examples[start : start + 1024]]
        best = near[np.arange(len(near)), own]
        ranks += (1 + (near > best[:, None]).sum(1)).tolist()
    return {
        "count": float(len(ranks)),
        "accuracy_at_1": float(np.mean([rank == 1 for rank in ranks])),
        "mean_reciprocal_rank": float(np.mean([1 / rank for rank in ranks])),
    }


def gold(example: Any) -> Any:
    """What is right, as a prediction's value would say it."""
    for name in ("label", "labels", "score", "tags", "answers"):
        if hasattr(example, name):
            return getattr(example, name)
    return None


def rightness(example: Any, value: Any) -> float:
    """How right a prediction is, from 0 to 1; of numbers, how far off (from 0 down)."""
    if hasattr(example, "answers"):
        texts = {"": [span.text for span in example.answers]}
        return raw_scores(texts, {"": value})[1][""]
    if hasattr(example, "score"):
        return -abs(float(value) - float(example.score))
    if hasattr(example, "tags"):
        same = [one == other for one, other in zip(example.tags, value, strict=True)]
        return sum(same) / max(1, len(same))
    if hasattr(example, "labels"):
        return float(set(value) == set(example.labels))
    return float(value == gold(example))


def metric_of(dataset: Dataset[Any], name: str, labels: Sequence[str]) -> Callable[..., float]:
    """A metric as a function of columns (examples, values), to be drawn again and again."""
    positive = _positive(labels) if dataset.task == "classification" else None

    def compute(examples: Sequence[Any], values: Sequence[Any]) -> float:
        # Questions drawn twice would share an id.
        rows = list(examples)
        if dataset.task == "answering":
            rows = [replace(one, id=str(number)) for number, one in enumerate(rows)]
        return score(replace(dataset, examples=rows), list(values), positive)[name]

    return compute


def drawable(found: Evaluation, name: str) -> bool:
    """Can a score be computed of examples that were drawn anew?"""
    return name != "calibration_error" and not isinstance(found.dataset.examples[0], Related)


def interval(found: Evaluation, name: str, labels: Sequence[str], draws: int = 200) -> Any:
    """A score's bootstrap interval over examples."""
    values = [one.value for one in found.predictions]
    metric = metric_of(found.dataset, name, labels)
    return bootstrap(metric, found.dataset.examples, values, draws=draws)


def compare(first: Evaluation, second: Evaluation, name: str, draws: int = 1000) -> Comparison:
    """Does the second model do better on the same examples? A paired bootstrap of a metric."""
    if first.dataset.examples != second.dataset.examples:
        raise BertsmithError("two models can be compared on the same examples only")
    if isinstance(first.dataset.examples[0], Related):
        raise BertsmithError("models of texts that belong together cannot be compared pairwise")
    values = [[one.value for one in side.predictions] for side in (first, second)]
    metric = metric_of(first.dataset, name, first.dataset.labels)
    return paired_bootstrap(metric, first.dataset.examples, *values, draws=draws)


def _positive(labels: Sequence[str]) -> str | None:
    """The label of two whose F1 people mean."""
    if len(labels) != 2:
        return None
    known = [name for name in labels if name.lower() in POSITIVE]
    return known[0] if len(known) == 1 else sorted(labels)[1]
