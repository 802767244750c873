"""Task: how a task is trained, predicted, scored and displayed.

Fine-tuning, distillation, prediction, evaluation, reports, model cards and benchmarks read nothing
else of a task: no other room knows its name. Adding a task is one folder with one `TASK`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from bertsmith.checkpoint import Checkpoint
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.infer.loaded import LoadedModel
from bertsmith.metrics.calibration import calibration_error
from bertsmith.metrics.conformal import limit_for
from bertsmith.metrics.labels import Score
from bertsmith.metrics.labels import Scorer as Scorer  # part of the contract
from bertsmith.numbers import shown
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.reading import Reading
from bertsmith.tasks.training import TaskOptions, Training
from bertsmith.tasks.use import TaskResult, Use

# Entries of config.json that were fitted on a model's outputs: other weights make them wrong.
FITTED: tuple[str, ...] = ("decision_threshold", "label_thresholds", "no_answer_threshold")
FITTED += ("abstain_below", "conformal")

Values = Sequence[Any]  # one for each example, as `Prediction.value` is
Rows = list[dict[str, Any]]
Votes = Sequence[tuple[int, float, Any]]  # the number of an example, a weight, logits


@dataclass(frozen=True)
class Prediction(TaskResult):
    """The prediction for one example.

    `value` is compared by metrics: a label, labels, a number, tags, an answer's text, or the index
    of a choice; `output` is returned by files and servers.
    """

    value: Any
    confidence: float  # from 0 to 1
    output: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Mark:
    """A highlighted part of a text: text[start:end]."""

    start: int
    end: int
    kind: str  # "correct", "missed" (labelled, not predicted) or "wrong" (predicted, not labelled)
    note: str = ""


@dataclass(frozen=True)
class DisplayText:
    """A text of an example as a page shows it."""

    text: str
    marks: tuple[Mark, ...] = ()
    title: bool = False  # a question or prompt, shown in bold


@dataclass(frozen=True)
class Display:
    """An example with its label and prediction, for people."""

    passages: tuple[DisplayText, ...]
    label: str | None = None  # None where the passages show it
    prediction: str | None = None
    confidence: float | None = None


class Task(Use):
    """A use that can be learned. There is one value of each task, without a state."""

    reading: ClassVar[Reading]  # how rows become its examples
    name: ClassVar[str]  # as its reading has it, like these two
    order: ClassVar[int]  # its place in lists
    about: ClassVar[str]  # a few words on the prediction
    head: ClassVar[str | None]  # the head of the model that it needs
    hub_tag: ClassVar[str]  # the pipeline tag of the model card
    opens_as: ClassVar[str]  # transformers' AutoModelFor…; empty: sentence-transformers
    row_columns: ClassVar[tuple[str, str]] = ("text", "pair")  # of the command line's texts
    needs_pair: ClassVar[bool] = False  # is the second text required?
    usage: ClassVar[str]  # an example call of a method of `Bert`, for the model card
    stored: ClassVar[tuple[str, ...]] = ()  # entries of config.json that only its models have
    defaults: ClassVar[Mapping[str, Any]] = {}  # that differ from finetune's
    options: ClassVar[frozenset[str]] = frozenset()  # of `TaskOptions`
    losses: ClassVar[tuple[str, ...]] = ()  # to choose from; the first is the default
    learner: ClassVar[type[Training]]  # how it is trained
    label_at: ClassVar[str] = "label"  # the attribute of an example that is its label
    measures: ClassVar[tuple[str, ...]]  # scores that are better if higher; the first decides
    kinds: ClassVar[tuple[type, ...]]  # the examples that it can predict
    carriers: ClassVar[tuple[type, ...]] = (object,)  # those that can have a label of this task
    pipeline: ClassVar[str] = ""  # options that transformers' pipeline needs for our outputs
    ranked: ClassVar[bool] = False  # can predictions list several, best first?

    # Traits: what predictions are, and what was measured or can be done with them.
    names_labels: ClassVar[bool] = False  # the model stores the names of its labels
    exclusive: ClassVar[bool] = False  # one label or choice: their probabilities add up to 1
    several: ClassVar[bool] = False  # any number of labels, each with a probability of its own
    numeric: ClassVar[bool] = False  # numbers: more or less far off, without a confidence
    measure: ClassVar[str] = ""  # what a number is, if it has another unit than the labels
    baseline: ClassVar[Literal["words", "vectors", ""]] = ""  # a classifier, or cosines of pairs
    one_output: ClassVar[bool] = False  # a text has one output, whatever its tokens are
    fits_static: ClassVar[bool] = True  # can be learned with static vectors
    least_steps: ClassVar[int] = 0  # few examples are learned for more epochs
    adamw_for_few: ClassVar[bool] = False  # and with AdamW, where Muon is the model's default

    def __init_subclass__(cls) -> None:
        """Take name, order and about from the reading, unless the class sets a name itself."""
        super().__init_subclass__()
        if "reading" in vars(cls) and "name" not in vars(cls):
            cls.name, cls.order, cls.about = cls.reading.name, cls.reading.order, cls.reading.about

    @property
    def perfect(self) -> float:
        """The correctness of a prediction without an error."""
        return 0.0 if self.numeric else 1.0

    @property
    def confident(self) -> bool:
        """Do predictions have a confidence?"""
        return not self.numeric

    @property
    def conformal(self) -> bool:
        """Can predictions be sets of labels, or intervals, of a stated coverage?"""
        return self.exclusive or (self.numeric and not self.measure)

    # ------------------------------------------------------------------ learning

    def training(self, dataset: Dataset[Any], options: TaskOptions) -> Training:
        """Return how this task is trained on a file."""
        return self.learner(dataset, options)

    def tuned(
        self, bert: LoadedModel, dataset: Dataset[Any], train: Dataset[Any]
    ) -> tuple[list[Prediction], dict[str, Any]]:
        """Return predictions tuned on this (dev) data, and the tuned values for config.json."""
        return self.predict(bert, dataset.examples), {}

    def carries_label(self, example: Any) -> bool:
        """Return whether an example has a label of this task."""
        return example.labelled and isinstance(example, self.carriers)

    def with_prediction(self, example: Any, prediction: Prediction) -> Any:
        """Return an example with a prediction as its label."""
        raise BertsmithError(f"predictions of {self.name} cannot be learned as labels")

    def labelled_by(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Any]:
        """Return examples with a model's predictions as labels."""
        return list(map(self.with_prediction, examples, self.predict(bert, examples)))

    def scheme(self, labels: Sequence[str]) -> str | None:
        """Return the tagging scheme of labels that are entity tags."""
        return None

    # ------------------------------------------------------------------ predicting

    def fits(self, checkpoint: Checkpoint) -> bool:
        """Return whether a model with this head was trained for this task."""
        return self.head in checkpoint.entries and checkpoint.settings.keys() >= {*self.stored}

    def can(self, bert: LoadedModel) -> bool:
        """Return whether a model has the head, and what the task stores."""
        return super().can(bert) and bert.checkpoint.settings.keys() >= {*self.stored}

    def predict(self, bert: LoadedModel, examples: Sequence[Any], top: int = 1) -> list[Prediction]:
        """Return a prediction for every example; for answers, `output` has the `top` best."""
        raise NotImplementedError

    def demand_kind(self, example: Any) -> None:
        """Raise an error for examples of another task."""
        if not isinstance(example, self.kinds):
            raise BertsmithError(f"this model is for {self.name}; the file's examples are not")

    def explain(self, bert: LoadedModel, example: Any, prediction: Prediction) -> Rows:
        """Return every word with its contribution to the prediction (integrated gradients)."""
        what = "labels, numbers, tags and answers"
        raise BertsmithError(f"explanations are for {what}, not for {self.name}")

    # ------------------------------------------------------------------ asking

    def row(self, text: str, pair: str | None) -> dict[str, str]:
        """Return a text of the command line, with a second one or not, as a row of a table."""
        first, second = self.row_columns
        if pair is None and self.needs_pair:
            pair_setting = setting_name("pair", option="--pair PASSAGE")
            raise BertsmithError(f"a {first} needs a passage: {pair_setting}")
        return {first: text} if pair is None else {first: text, second: pair}

    def with_labels(self, labels: Sequence[str]) -> Task:
        """Return the task for these labels, if its labels are given with the texts."""
        raise NotImplementedError

    # ------------------------------------------------------------------ scoring

    def scores(self, dataset: Dataset[Any]) -> bool:
        """Return whether predictions can be scored on the examples of a file."""
        return dataset.task == self.name

    def positive(self, labels: Sequence[str]) -> str | None:
        """Return the label of two that a threshold decides on."""
        return None

    def metrics(self, dataset: Dataset[Any]) -> tuple[str, ...]:
        """Return the names of scores that are better if higher; the first is the default."""
        return self.measures

    def label_of(self, example: Any) -> Any:
        """Return the label of an example, in the form of `Prediction.value`."""
        return getattr(example, self.label_at)

    def scorer(
        self,
        dataset: Dataset[Any],
        predictions: Sequence[Prediction],
        bert: LoadedModel | None = None,
    ) -> Scorer:
        """Return the scores of predictions for labelled examples, with their calibration error."""
        values = [prediction.value for prediction in predictions]
        score, correct = self.score(dataset, values, bert), self.correct(dataset, values)
        if correct is None:
            return score
        confidences = np.clip([prediction.confidence for prediction in predictions], 0, 1)
        return lambda weights: {
            **score(weights),
            "calibration_error": calibration_error(confidences, np.asarray(correct), weights),
        }

    def score(self, dataset: Dataset[Any], values: Values, bert: LoadedModel | None) -> Scorer:
        """Return the scores of predicted values.

        Some depend on the model: the names of its labels, or the vectors of a whole file.
        """
        raise NotImplementedError

    def demand_labels(self, bert: LoadedModel, dataset: Dataset[Any]) -> None:
        """Raise an error if the model knows none of the labels: every prediction would be wrong."""
        known = bert.checkpoint.labels
        if self.names_labels and dataset.labels and not {*known} & {*dataset.labels}:
            raise BertsmithError(
                f"the model knows none of the labels in {dataset.path}: it predicts "
                f"{_listed(known)}; the file has {_listed(dataset.labels)}"
            )

    def notes(self, bert: LoadedModel, dataset: Dataset[Any]) -> list[str]:
        """Return notes on how to read the scores."""
        unknown = {*dataset.labels} - {*bert.checkpoint.labels} if self.names_labels else set()
        count = sum(not unknown.isdisjoint(one.label_names) for one in dataset.examples)
        what = f"examples with labels the model does not know ({_listed(unknown)})"
        return [f"{what}: {count}"] if count else []

    def correctness(self, example: Any, value: Any) -> float:
        """Return how correct a prediction is, 0 to 1; for numbers, minus the absolute error."""
        label = self.label_of(example)
        return -abs(float(value) - float(label)) if self.numeric else float(value == label)

    def nonconformity(self, example: Any, prediction: Prediction) -> float:
        """Return how badly a label fits a prediction: 1 - its probability, or an error."""
        label = self.label_of(example)
        if self.numeric:
            return abs(float(prediction.value) - float(label))
        scores = prediction.output["scores"]
        known = scores.get(label, 0.0) if isinstance(scores, Mapping) else scores[label]
        return 1.0 - float(known)

    def per_class(self, dataset: Dataset[Any], values: Values) -> dict[str, Score]:
        """Return precision, recall and F1 of every class; empty if there are none."""
        return {}

    def classes(self, dataset: Dataset[Any], values: Values) -> tuple[list[str], list[str]] | None:
        """Return labels and predictions for a confusion matrix, if each is a single class."""
        return None

    def correct(self, dataset: Dataset[Any], values: Values) -> list[bool] | None:
        """Return which predictions are correct, if confidence can be compared with it."""
        if not self.exclusive:
            return None
        pairs = zip(dataset.examples, values, strict=True)
        return [self.label_of(example) == value for example, value in pairs]

    def votes(
        self, bert: LoadedModel, examples: Sequence[Any], predictions: Sequence[Prediction]
    ) -> Votes:
        """Return the logits whose softmax a prediction is, or the weighted mean of several is."""
        rows = (prediction.output["scores"] for prediction in predictions)
        chances = ([*row.values()] if isinstance(row, Mapping) else row for row in rows)
        return [(n, 1.0, np.log(np.clip(row, 1e-30, 1.0))) for n, row in enumerate(chances)]

    # ------------------------------------------------------------------ showing

    def display(self, example: Any, prediction: Prediction) -> Display:
        """Return an example with its label and prediction for display."""
        passages = tuple(DisplayText(text) for text in example.texts)
        label, value = self.spoken(self.label_of(example)), self.spoken(prediction.value)
        return Display(passages, label, value, prediction.confidence)

    def spoken(self, value: Any) -> str:
        """Return a label or prediction as text."""
        return f"{value:.4g}" if self.numeric else str(value)


def _listed(names: Iterable[str]) -> str:
    """The first of some names, for a message."""
    return ", ".join(shown(name).strip("'\"") for name in sorted(names)[:5])


def exclusive_prediction(
    bert: LoadedModel, value: Any, confidence: float, output: dict[str, Any]
) -> Prediction:
    """The prediction of one label or choice.

    A model that may abstain adds "abstained" to the output, and one that was calibrated for a
    coverage adds "set": the labels of the conformal set, the likeliest first.
    """
    below = bert.checkpoint.settings.get("abstain_below")
    if below is not None:
        output = {**output, "abstained": confidence < float(below)}
    if (limit := conformal_limit(bert)) is not None:
        scores = output["scores"]
        pairs = list(scores.items() if isinstance(scores, Mapping) else enumerate(scores))
        pairs.sort(key=lambda pair: -pair[1])
        output = {**output, "set": [name for name, score in pairs if 1.0 - score <= limit]}
    return Prediction(value, confidence, output)


def conformal_limit(bert: LoadedModel) -> float | None:
    """The largest nonconformity within a conformal set; None: the model is not calibrated."""
    stored = bert.checkpoint.settings.get("conformal")
    return None if not stored else limit_for(stored["limits"], float(stored["coverage"]))
