"""Scores of a model on labelled data, with intervals, and paired comparisons."""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.examples.draw import shuffled
from bertsmith.infer.loaded import LoadedModel
from bertsmith.ledger import Ledger
from bertsmith.metrics import Comparison, Summary, confusion, resample, resample_pair
from bertsmith.metrics.calibration import Calibration, calibration
from bertsmith.metrics.conformal import limit_for
from bertsmith.metrics.drift import Figures
from bertsmith.metrics.labels import known, paired
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.registry import task_named, task_of
from bertsmith.tasks.task import Prediction, Scorer, Task, conformal_limit

SAMPLE = 500  # examples whose inputs and predictions are stored as figures
MATRIX = 500  # labels up to which there is a confusion matrix


@dataclass(frozen=True)
class Evaluation:
    """A data set, the predictions of a model for it, and their scores."""

    task: Task
    dataset: Dataset[Any]  # labelled examples only
    predictions: list[Prediction]
    scores: dict[str, float]
    scorer: Scorer
    notes: list[str] = field(default_factory=list)
    tuned: dict[str, Any] = field(default_factory=dict)  # entries of config.json, chosen on this

    @property
    def values(self) -> list[Any]:
        """The predictions in the form that metrics compare."""
        return [one.value for one in self.predictions]

    def correctness(self) -> list[float]:
        """How correct each prediction is, from 0 to 1."""
        pairs = zip(self.dataset.examples, self.values, strict=True)
        return [self.task.correctness(example, value) for example, value in pairs]

    def calibration(self) -> Calibration | None:
        """The confidence of predictions beside their accuracy, if it can be compared with it."""
        correct = self.task.correct(self.dataset, self.values)
        confidences = [min(1.0, max(0.0, one.confidence)) for one in self.predictions]
        return None if correct is None else calibration(confidences, correct)

    def figures(self, bert: LoadedModel) -> Figures | None:
        """Statistics of the first examples as a server collects them, if requests have texts."""
        asked: Any = self.task.Request
        rows = [one.texts for one in self.dataset.examples[:SAMPLE]]
        if {*asked.model_fields} - {"pairs", "words"} != {"inputs"} or not rows:
            return None
        bert = copy(bert)
        bert.ledger = Ledger()  # these examples are in the model's ledger already
        firsts = [row[0] for row in rows]
        pairs = [" ".join(row[1:]) for row in rows] if any(row[1:] for row in rows) else None
        more: dict[str, Any] = {"pairs": pairs} if "pairs" in asked.model_fields else {}
        call = self.task.call(bert, asked.model_construct(inputs=firsts, **more))
        steps, figures = call.steps.steps(bert, *call.args), Figures()
        needed = next(steps)
        try:
            steps.send(bert.run(needed.windows, needed.compute))
        except StopIteration as stop:
            figures.add(needed.windows, bert.tokenizer.unk_id, stop.value)
        return figures

    def details(self) -> dict[str, Any]:
        """Scores of every class, the confusion matrix and the calibration bins, for machines."""
        per_class = self.task.per_class(self.dataset, self.values)
        content: dict[str, Any] = {"per_class": {n: asdict(one) for n, one in per_class.items()}}
        sides = self.task.classes(self.dataset, self.values)
        if sides and len(known(*sides)) <= MATRIX:
            content["confusion"] = {"labels": known(*sides), "counts": confusion(*sides).tolist()}
        if (bins := self.calibration()) is not None:
            errors = {"expected_error": bins.expected, "worst_error": bins.worst}
            content["calibration"] = {**errors, "bins": [vars(one) for one in bins.bins]}
        return content


def evaluate(bert: LoadedModel, dataset: Dataset[Any]) -> Evaluation:
    """Score a model on every labelled example."""
    dataset, task = labelled(dataset), task_of(bert)
    if not task.scores(dataset):
        raise BertsmithError(
            f"{dataset.path} has examples of {dataset.task}, but the model is for {task.name}"
        )
    task.demand_kind(dataset.examples[0])
    task.demand_labels(bert, dataset)
    return scored(bert, dataset, task.predict(bert, dataset.examples))


def tuned(bert: LoadedModel, dataset: Dataset[Any], train: Dataset[Any]) -> Evaluation:
    """The evaluation with thresholds that are best on this data, which the model keeps."""
    dataset = labelled(dataset)
    predictions, changes = task_of(bert).tuned(bert, dataset, train)
    keep_settings(bert, changes)
    result = scored(bert, dataset, predictions)
    return replace(result, scores={**result.scores, **changes}, tuned=changes)


def keep_settings(bert: LoadedModel, changes: dict[str, Any]) -> None:
    """Add entries to the config.json of a model."""
    if changes:
        settings = {**bert.checkpoint.settings, **changes}
        bert.checkpoint = replace(bert.checkpoint, settings=settings)


def labelled(dataset: Dataset[Any]) -> Dataset[Any]:
    """The examples that can be scored."""
    examples = dataset.gold()
    if not examples:
        raise BertsmithError(f"{dataset.path} has no labels to score")
    return replace(dataset, examples=examples)


def sample_of(dataset: Dataset[Any], count: int) -> Dataset[Any]:
    """A random sample of the labelled examples, the same each time; all with a count of 0."""
    dataset = labelled(dataset)
    if not count or count >= len(dataset.examples):
        return dataset
    order = shuffled(np.arange(len(dataset.examples)), len(dataset.examples), 0, "limit")
    return replace(dataset, examples=[dataset.examples[place] for place in sorted(order[:count])])


def scored(bert: LoadedModel, dataset: Dataset[Any], predictions: list[Prediction]) -> Evaluation:
    """Predictions with their scores."""
    task = task_of(bert)
    scorer = task.scorer(dataset, predictions, bert)
    scores = {"count": float(len(predictions)), **scorer(None)}
    correct = task.correct(dataset, [one.value for one in predictions])
    answered = [not one.output.get("abstained") for one in predictions]
    if correct is not None and "abstain_below" in bert.checkpoint.settings:
        hits = sum(hit for hit, counts in zip(correct, answered, strict=True) if counts)
        scores["coverage"] = sum(answered) / len(answered)
        scores["accuracy_answered"] = hits / sum(answered) if any(answered) else math.nan
    if (limit := conformal_limit(bert)) is not None and task.conformal:
        pairs = zip(dataset.examples, predictions, strict=True)
        inside = [task.nonconformity(*pair) <= limit for pair in pairs]
        sizes = [len(one.output.get("set", ())) for one in predictions]
        scores["set_coverage"] = sum(inside) / len(inside)
        scores["set_size"] = 2 * limit if task.numeric else sum(sizes) / len(sizes)
    return Evaluation(task, dataset, predictions, scores, scorer, task.notes(bert, dataset))


def state_coverage(bert: LoadedModel, coverage: float) -> None:
    """Let a model that was calibrated for it predict sets or intervals of another coverage."""
    stored = bert.checkpoint.settings.get("conformal")
    if not stored:
        name = setting_name("coverage")
        file = setting_name("calibrate_on", option="--calibrate-on FILE")
        raise BertsmithError(
            f"this model has no held-out rows for a coverage: fine-tune it with {name}, or "
            f"calibrate it when it is evaluated: {file} and {name}"
        )
    limit_for(stored["limits"], coverage)
    keep_settings(bert, {"conformal": {**stored, "coverage": coverage}})


def score(dataset: Dataset[Any], values: Sequence[Any]) -> dict[str, float]:
    """Scores of one value for each example of a file, in its order; unlabelled ones are left out.

    A value is a label, labels, a number, a tag for each word, an answer's text or the index of a
    choice.
    """
    paired(dataset.examples, values)
    rows = dict(zip(map(id, dataset.examples), values, strict=True))
    known_data = labelled(dataset)
    predictions = [Prediction(rows[id(example)], 1.0) for example in known_data.examples]
    scores = task_named(dataset.task).scorer(known_data, predictions)(None)
    scores.pop("calibration_error", None)  # values alone have no confidence
    return {"count": float(len(predictions)), **scores}


def interval(result: Evaluation, name: str, draws: int = 1000) -> Summary:
    """A score with its bootstrap interval over examples."""
    check_score(result, name)
    return resample(lambda weights: result.scorer(weights)[name], len(result.dataset), draws=draws)


def compare(first: Evaluation, second: Evaluation, name: str, draws: int = 1000) -> Comparison:
    """Is the second model better on the same examples? A paired bootstrap."""
    if first.dataset.examples != second.dataset.examples:
        raise BertsmithError("two models can only be compared on the same examples")
    for one in (first, second):
        check_score(one, name)
    return resample_pair(
        lambda weights: first.scorer(weights)[name],
        lambda weights: second.scorer(weights)[name],
        len(first.dataset),
        draws=draws,
    )


def check_score(result: Evaluation, name: str) -> None:
    """Raise an error if an evaluation has no score of this name."""
    scores = [one for one in result.scores if one != "count"]
    if name not in result.scorer(None):
        raise BertsmithError(f"unknown score {name!r}; available: {', '.join(scores)}")
