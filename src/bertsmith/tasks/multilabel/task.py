"""Multilabel: any number of labels for a text, or for a pair of texts."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.checkpoint import Checkpoint
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.metrics.labels import Score, multilabel_per_label, multilabel_scores
from bertsmith.tasks.classifying import classify
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.labels import LabelTask, LabelTraining, texts_of
from bertsmith.tasks.multilabel.reading import READING, MultiLabelled
from bertsmith.tasks.task import Prediction, Scorer, Values
from bertsmith.tasks.training import (
    Targets,
    TaskOptions,
    TrainingItem,
    binary_loss,
    item_weights,
    label_weights,
)


class MultilabelTraining(LabelTraining):
    """Binary cross entropy of every label."""

    problem = "multi_label_classification"

    def __init__(self, dataset: Dataset[Any], options: TaskOptions) -> None:
        super().__init__(dataset, options)
        if not self.labels:
            raise BertsmithError(f"{dataset.path}: contains no labels")
        gold = dataset.gold()
        seen = (name for example in gold for name in example.label_names)
        self.weights = label_weights(options.class_weights, self.labels, seen, len(gold))

    def target(self, example: Any) -> tuple[int, ...]:
        return tuple(self.index[name] for name in example.labels)

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """Which labels apply (N, labels), how much each counts (N, labels), and weights (N,)."""
        applies = torch.zeros(len(items), len(self.labels))
        for row, item in enumerate(items):
            applies[row, list(item.target)] = 1.0
        weights, otherwise = torch.tensor(self.weights).unbind(1)
        each = torch.where(applies > 0.5, weights, otherwise)
        return {"applies": applies, "each": each, "weights": item_weights(items)}

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        focal, smoothing = self.options.focal, self.options.smoothing
        loss = binary_loss(outputs, targets["applies"], focal=focal, smoothing=smoothing)
        return ((loss * targets["each"]).mean(-1) * targets["weights"]).sum()

    def soft_loss(
        self, outputs: Tensor, batch: Batch, targets: Targets, temperature: float
    ) -> Tensor:
        """Binary cross entropy with the teacher's probabilities, less their own entropy."""
        teacher = targets["teacher"] / temperature
        goal = teacher.sigmoid()
        loss = F.binary_cross_entropy_with_logits(outputs / temperature, goal, reduction="none")
        loss = loss - F.binary_cross_entropy_with_logits(teacher, goal, reduction="none")
        return (loss.mean(-1) * targets["weights"]).sum() * temperature**2


class MultilabelTask(LabelTask):
    """Any number of labels."""

    reading = READING
    usage = 'classify("A text.").labels'
    defaults: ClassVar = {"epochs": 4}
    options = frozenset({"class_weights", "focal", "smoothing", "both_orders"})
    carriers = (MultiLabelled,)
    learner, label_at = MultilabelTraining, "labels"
    measures = ("micro_f1", "macro_f1", "exact")
    names_labels = several = True
    baseline = "words"

    def fits(self, checkpoint: Checkpoint) -> bool:
        problem = checkpoint.settings.get("problem_type")
        return super().fits(checkpoint) and problem == "multi_label_classification"

    def predict(self, bert: LoadedModel, examples: Sequence[Any], top: int = 1) -> list[Prediction]:
        predictions = []
        for result in classify(bert, *texts_of(examples)):
            labels = result.labels or []
            # The confidence of the least certain decision: each label applies or does not.
            confidence = min(max(score, 1 - score) for score in result.scores.values())
            output = {"labels": labels, "scores": result.scores}
            predictions.append(Prediction(tuple(labels), confidence, output))
        return predictions

    def explained_outputs(self, bert: LoadedModel, value: Any) -> list[int]:
        """Those of all predicted labels; of all labels where none is predicted."""
        labels = bert.checkpoint.labels
        return [labels.index(name) for name in value] or list(range(len(labels)))

    def correctness(self, example: Any, value: Any) -> float:
        return float(set(value) == set(example.labels))

    def score(self, dataset: Dataset[Any], values: Values, bert: LoadedModel | None) -> Scorer:
        return multilabel_scores([example.labels for example in dataset.examples], values)

    def per_class(self, dataset: Dataset[Any], values: Values) -> dict[str, Score]:
        return multilabel_per_label([example.labels for example in dataset.examples], values)

    def spoken(self, value: Any) -> str:
        return ", ".join(sorted(value or ())) or "none"


TASK = MultilabelTask()
