"""Regression: a number for a text, or for a pair of texts."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean, pstdev
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bertsmith.batch import Batch
from bertsmith.checkpoint import Checkpoint
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.metrics.numbers import number_scores
from bertsmith.model import Model
from bertsmith.tasks.classifying import classify
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.labels import LabelTask, LabelTraining, texts_of
from bertsmith.tasks.regression.reading import READING, Scored
from bertsmith.tasks.task import Prediction, Scorer, Values, conformal_limit
from bertsmith.tasks.training import Targets, TaskOptions


class RegressionTraining(LabelTraining):
    """Squared error of standardised numbers.

    The head learns deviations from the mean, whatever the unit; the output layer of the finished
    model is rescaled to give the number itself.
    """

    problem = "regression"

    def __init__(self, dataset: Dataset[Any], options: TaskOptions) -> None:
        super().__init__(dataset, options)
        scores = [example.score for example in dataset.gold()]
        self.mean, self.deviation = fmean(scores), pstdev(scores)
        if not self.deviation:
            raise BertsmithError(f"{dataset.path}: all scores are {self.mean:g}: nothing to learn")
        self.labels = ("score",)

    def target(self, example: Any) -> float:
        return float(example.score - self.mean) / self.deviation

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        return ((outputs[:, 0] - targets["labels"]).square() * targets["weights"]).sum()

    def soft_loss(
        self, outputs: Tensor, batch: Batch, targets: Targets, temperature: float
    ) -> Tensor:
        """Squared error with the teacher's number, in deviations from the mean."""
        goal = (targets["teacher"][:, 0] - self.mean) / self.deviation
        return ((outputs[:, 0] - goal).square() * targets["weights"]).sum()

    def start_from_used(self, model: Model) -> None:
        """Rescale the output layer from the unit of the file to deviations from the mean."""
        _scale(model, 1 / self.deviation, -self.mean / self.deviation)

    @contextmanager
    def as_used(self, model: Model) -> Iterator[None]:
        """Rescale the output layer to the unit of the file."""
        _scale(model, self.deviation, self.mean)
        try:
            yield
        finally:
            self.start_from_used(model)


@torch.no_grad()
def _scale(model: Model, factor: float, shift: float) -> None:
    output = model.heads["classify"].output
    assert isinstance(output, nn.Linear)
    output.weight.mul_(factor)
    output.bias.mul_(factor).add_(shift)


class RegressionTask(LabelTask):
    """A number."""

    reading = READING
    usage = 'classify("A text.").score'
    defaults: ClassVar = {"epochs": 4}
    carriers = (Scored,)
    learner, label_at, measures = RegressionTraining, "score", ("pearson", "spearman")
    numeric = True
    baseline = "vectors"
    options = frozenset({"both_orders"})

    def fits(self, checkpoint: Checkpoint) -> bool:
        problem = checkpoint.settings.get("problem_type")
        single = len(checkpoint.labels) == 1 and problem != "multi_label_classification"
        return super().fits(checkpoint) and (problem == "regression" or single)

    def predict(self, bert: LoadedModel, examples: Sequence[Any], top: int = 1) -> list[Prediction]:
        limit = conformal_limit(bert)
        predictions = []
        for result in classify(bert, *texts_of(examples)):
            score = result.score
            output: dict[str, Any] = {"score": score}
            if limit is not None:
                output["interval"] = [score - limit, score + limit]
            predictions.append(Prediction(score, 1.0, output))
        return predictions

    def score(self, dataset: Dataset[Any], values: Values, bert: LoadedModel | None) -> Scorer:
        return number_scores([example.score for example in dataset.examples], values)


TASK = RegressionTask()
