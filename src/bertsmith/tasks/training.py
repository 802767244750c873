"""The interface between tasks and the fine-tuning loop: items, targets and loss."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.windows import Window
from bertsmith.model import Model
from bertsmith.numbers import parse_number
from bertsmith.objectives.distilled import soft_cross_entropy
from bertsmith.settings.finetuning import FinetuningSettings
from bertsmith.tasks.dataset import Dataset

Targets = dict[str, Tensor]
ABSENT = -1e4  # the logit of what cannot be chosen: finite, so that 0 × its logarithm is 0
LEARNED = 0.001  # the mean loss of an epoch below which a training file counts as learned


@dataclass(frozen=True)
class TrainingItem:
    """Sequences that must be in one batch, what to learn from them, and with which weight."""

    windows: tuple[Window, ...]
    target: Any
    weight: float = 1.0

    @cached_property
    def tokens(self) -> int:
        """How many tokens pass through the model."""
        return sum(len(window.ids) for window in self.windows)


Sample = tuple[TrainingItem, ...]  # all items of one example

# The settings of a run that tasks read. `Task.options` names those that a task understands.
TASK_OPTIONS = ("class_weights", "focal", "smoothing", "temperature", "both_orders", "matryoshka")
TaskOptions = FinetuningSettings


class Training:
    """How one task is learned from one training file, with the options of one run."""

    head: ClassVar[str | None]  # the head that is trained, if any
    problem: ClassVar[str | None] = None  # the `problem_type` of config.json
    each_token: ClassVar[bool] = False  # are there outputs for every token, or for sequences?
    together: ClassVar[bool] = False  # must all items of a step be in one batch?
    learned: ClassVar[float] = LEARNED  # the mean loss below which training may end; 0: never
    exact: ClassVar[bool] = False  # do targets stay the same when filler sequences are added?

    def __init__(self, dataset: Dataset[Any], options: TaskOptions) -> None:
        self.dataset, self.options, self.labels = dataset, options, dataset.labels
        self.index = {name: number for number, name in enumerate(self.labels)}

    def config_changes(self) -> dict[str, Any]:
        """Entries that config.json gets: by default the names of the labels, if there are any."""
        return label_config(self.labels, self.problem) if self.labels else {}

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """Labelled examples as samples; those that cannot be learned from are left out."""
        raise NotImplementedError

    def keys(self, sample: Sample) -> Collection[int]:
        """Keys of a sample that no other sample of its batch should share."""
        return ()

    def outputs(self, model: Model, batch: Batch) -> Tensor:
        """The outputs that the loss reads."""
        return model(batch, self.head)

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """The targets of a batch as CPU tensors; made ahead of time, without the model.

        By default `labels` (N,), the targets of the items, and their `weights` (N,). Rows that
        index tokens count from the start of the batch.
        """
        labels = torch.tensor([item.target for item in items])
        return {"labels": labels, "weights": item_weights(items)}

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        """The sum of all items' losses, each times its weight.

        Tensor operations only, which never wait for a GPU: a CUDA graph may capture them.
        """
        raise NotImplementedError

    def soft_loss(
        self, outputs: Tensor, batch: Batch, targets: Targets, temperature: float
    ) -> Tensor:
        """The divergence of outputs from a teacher's, `targets["teacher"]`, summed over items."""
        raise BertsmithError(f"{self.dataset.task} has no outputs to distil")

    def padded(self, targets: Targets, sequences: int, tokens: int) -> Targets:
        """The targets of a batch to which filler sequences are added, up to so many of both.

        Their size is the same for all batches of one size, and fillers have no weight.
        """
        return {name: zero_padded(rows, sequences) for name, rows in targets.items()}

    def start_from_used(self, model: Model) -> None:
        """Make the head of a finished model one that can be trained further."""

    @contextmanager
    def as_used(self, model: Model) -> Iterator[None]:
        """The model as it will be used, while it is evaluated or copied."""
        yield


class GridTraining(Training):
    """An output for each window of each candidate of an item; a candidate's best window counts.

    Windows have the numbers of their candidates, which compete: they are in one batch.
    """

    exact = True

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """The cell of every window (N,) in a `grid` (items, candidates), and weights (items,)."""
        width = 1 + max(window.number for item in items for window in item.windows)
        cells = [row * width + one.number for row, item in enumerate(items) for one in item.windows]
        grid = torch.empty(len(items), width)  # of which only the shape is read
        return {"cells": torch.tensor(cells), "grid": grid, "weights": item_weights(items)}

    def best(self, outputs: Tensor, targets: Targets, absent: float = ABSENT) -> Tensor:
        """The best output of every candidate (items, candidates); `absent` where there is none."""
        shape = targets["grid"].shape
        empty = outputs.new_full((shape.numel(),), absent)
        return empty.scatter_reduce(0, targets["cells"], outputs.flatten(), "amax").view(shape)

    def soft_loss(
        self, outputs: Tensor, batch: Batch, targets: Targets, temperature: float
    ) -> Tensor:
        """Cross entropy with the teacher's probabilities of the candidates."""
        teacher = self.best(targets["teacher"], targets)
        student = self.best(outputs, targets)
        return distil_loss(student, {**targets, "teacher": teacher}, temperature)


def class_loss(
    logits: Tensor, targets: Tensor, *, focal: float = 0.0, smoothing: float = 0.0
) -> Tensor:
    """Cross entropy of each row (M, classes) with its target (M,) → (M,).

    With `focal`, rows that the model is sure of count less (Lin et al. 2017): × (1 - p)^focal.
    """
    loss = F.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)
    if focal:
        probability = logits.log_softmax(-1).gather(1, targets[:, None]).squeeze(1).exp()
        loss = loss * (1 - probability) ** focal
    return loss


def binary_loss(
    logits: Tensor, targets: Tensor, *, focal: float = 0.0, smoothing: float = 0.0
) -> Tensor:
    """Binary cross entropy of every label: two (M, labels) → (M, labels)."""
    smooth = targets * (1 - smoothing) + smoothing / 2
    loss = F.binary_cross_entropy_with_logits(logits, smooth, reduction="none")
    if focal:
        probability = logits.sigmoid()
        probability_of_target = torch.where(targets > 0.5, probability, 1 - probability)
        loss = loss * (1 - probability_of_target) ** focal
    return loss


def distil_loss(student: Tensor, targets: Targets, temperature: float) -> Tensor:
    """The soft loss of classes: two (N, classes), the sum over rows by their weights."""
    loss = soft_cross_entropy(student, targets["teacher"], temperature)
    return (loss * targets["weights"]).sum()


def item_weights(items: Sequence[TrainingItem]) -> Tensor:
    """The weights of items (N,)."""
    return torch.tensor([item.weight for item in items])


def zero_padded(rows: Tensor, count: int) -> Tensor:
    """Rows, and rows of zeros up to a count."""
    return torch.cat([rows, rows.new_zeros(count - len(rows), *rows.shape[1:])])


def sequence_starts(items: Sequence[TrainingItem]) -> list[int]:
    """The row at which each item's first sequence starts."""
    return list(accumulate((item.tokens for item in items), initial=0))[:-1]


def class_weights(option: str, labels: Sequence[str], seen: Iterable[str]) -> list[float]:
    """A weight for each label: 1 by default, balanced, or as given by `name=weight,...`.

    Balanced weights make all classes count the same in sum, as in scikit-learn.
    """
    if not option:
        return [1.0] * len(labels)
    if option == "balanced":
        counts = Counter(seen)
        total = sum(counts.values())
        return [total / (len(labels) * counts[name]) if counts[name] else 1.0 for name in labels]
    weights = dict.fromkeys(labels, 1.0)
    for part in option.split(","):
        name, _, number = map(str.strip, part.rpartition("="))
        if name not in weights:
            known = ", ".join(labels)
            raise BertsmithError(f"class weights: {name!r} is not a label; labels: {known}")
        weight = parse_number(number)
        if weight is None or weight < 0:
            raise BertsmithError(f"class weights: {number!r} is not a weight for {name!r}")
        weights[name] = weight
    return list(weights.values())


def label_weights(
    option: str, labels: Sequence[str], seen: Iterable[str], examples: int
) -> list[tuple[float, float]]:
    """The weight of each label of a multi-label file where it applies, and where it does not."""
    if option != "balanced":
        return [(weight, 1.0) for weight in class_weights(option, labels, seen)]
    counts = Counter(seen)
    sides = [(counts[name], examples - counts[name]) for name in labels]
    return [(examples / (2 * a), examples / (2 * b)) if a and b else (1.0, 1.0) for a, b in sides]


def label_config(labels: Sequence[str], problem: str | None) -> dict[str, Any]:
    """Entries of config.json for labels: their names, so that no order is ever assumed."""
    return {
        "id2label": {str(number): name for number, name in enumerate(labels)},
        "label2id": {name: number for number, name in enumerate(labels)},
        "num_labels": len(labels),
        "problem_type": problem,
    }
