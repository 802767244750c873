"""Classification: one label for a text, or for a pair of texts."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.checkpoint import Checkpoint
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.infer.loaded import LoadedModel
from bertsmith.metrics.labels import Score, label_scores, per_label
from bertsmith.tasks.classification.reading import READING, Labelled
from bertsmith.tasks.classifying import classify, positive, raw, window_votes
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.labels import LabelTask, LabelTraining, texts_of
from bertsmith.tasks.task import Prediction, Scorer, Values, Votes, exclusive_prediction
from bertsmith.tasks.training import Targets, TaskOptions, class_loss, class_weights, distil_loss


class ClassificationTraining(LabelTraining):
    """Cross entropy."""

    problem = "single_label_classification"

    def __init__(self, dataset: Dataset[Any], options: TaskOptions) -> None:
        super().__init__(dataset, options)
        if len(self.labels) < 2:
            only = ", ".join(map(repr, self.labels)) or "none"
            raise BertsmithError(
                f"{dataset.path}: training needs at least two labels, found: {only}"
                f" (without {setting_name('dev')} a part of the file is held out)"
            )
        seen = (example.label for example in dataset.gold())
        self.weights = class_weights(options.class_weights, self.labels, seen)

    def target(self, example: Any) -> int:
        return self.index[example.label]

    def weight(self, example: Any) -> float:
        return self.weights[self.target(example)]

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        focal, smoothing = self.options.focal, self.options.smoothing
        loss = class_loss(outputs, targets["labels"], focal=focal, smoothing=smoothing)
        return (loss * targets["weights"]).sum()

    def soft_loss(
        self, outputs: Tensor, batch: Batch, targets: Targets, temperature: float
    ) -> Tensor:
        return distil_loss(outputs, targets, temperature)


class ClassificationTask(LabelTask):
    """One label."""

    reading = READING
    usage = 'classify("A text.")'
    options = frozenset({"class_weights", "focal", "smoothing", "both_orders"})
    carriers = (Labelled,)
    learner = ClassificationTraining
    names_labels = exclusive = adamw_for_few = True
    baseline = "words"

    def fits(self, checkpoint: Checkpoint) -> bool:
        problem = checkpoint.settings.get("problem_type")
        several = problem in ("multi_label_classification", "regression")
        return super().fits(checkpoint) and not several and len(checkpoint.labels) > 1

    def predict(self, bert: LoadedModel, examples: Sequence[Any], top: int = 1) -> list[Prediction]:
        return [
            exclusive_prediction(
                bert, result.label, result.score, {"label": result.label, "scores": result.scores}
            )
            for result in classify(bert, *texts_of(examples))
        ]

    def votes(self, bert: LoadedModel, examples: Sequence[Any], predictions: Any) -> Votes:
        return window_votes(bert, *texts_of(examples), raw)

    def explained_outputs(self, bert: LoadedModel, value: Any) -> list[int]:
        return [bert.checkpoint.labels.index(value)]

    def positive(self, labels: Sequence[str]) -> str | None:
        return positive(labels)

    def metrics(self, dataset: Dataset[Any]) -> tuple[str, ...]:
        binary = ("f1",) if len(dataset.labels) == 2 else ()
        return ("accuracy", "macro_f1", "mcc", *binary)

    def score(self, dataset: Dataset[Any], values: Values, bert: LoadedModel | None) -> Scorer:
        labels = dataset.labels if bert is None else bert.checkpoint.labels
        return label_scores([one.label for one in dataset.examples], values, positive(labels))

    def notes(self, bert: LoadedModel, dataset: Dataset[Any]) -> list[str]:
        counted = positive(bert.checkpoint.labels)
        notes = [] if counted is None else [f"f1 is that of the label {counted!r}"]
        return [*notes, *super().notes(bert, dataset)]

    def per_class(self, dataset: Dataset[Any], values: Values) -> dict[str, Score]:
        return per_label([example.label for example in dataset.examples], values)

    def classes(self, dataset: Dataset[Any], values: Values) -> tuple[list[str], list[str]]:
        return [example.label for example in dataset.examples], list(values)


TASK = ClassificationTask()
