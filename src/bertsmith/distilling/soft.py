"""Training on a teacher's outputs: soft targets for every task that has a head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.model import Model
from bertsmith.tasks.classifying import vote
from bertsmith.tasks.labels import texts_of
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.task import Task
from bertsmith.tasks.training import Sample, Targets, Training, TrainingItem, zero_padded


@dataclass(frozen=True)
class Soft:
    """A target: that of the labels, and the teacher's outputs for the item's rows."""

    label: Any
    rows: Tensor  # (windows or tokens, outputs)


class SoftTraining(Training):
    """Learns a teacher's outputs, and with a weight also the labels of the file."""

    learned = 0.0

    def __init__(
        self, base: Training, teacher: LoadedModel, temperature: float, labels: float
    ) -> None:
        super().__init__(base.dataset, base.options)
        self.base, self.teacher = base, teacher
        self.temperature, self.label_weight = temperature, labels
        self.head, self.each_token = base.head, base.each_token  # type: ignore[misc]
        self.together, self.exact = base.together, base.exact  # type: ignore[misc]

    def config_changes(self) -> dict[str, Any]:
        """Entries that config.json gets: the names of the teacher's labels."""
        return self.base.config_changes()

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """The samples of the task, each with the outputs of the teacher for it.

        A teacher with the student's tokens reads the very same windows. Otherwise, it reads each
        text in its own way, which is enough where a text has one output.
        """
        samples = self.base.samples(bert, examples)
        if same_tokens(self.teacher, bert) and self.teacher.max_length >= bert.max_length:
            outputs = iter(self._by_window(samples))
            return [tuple(self._soft(item, outputs) for item in sample) for sample in samples]
        demand_one_output(task_named(self.dataset.task))
        rows = vote(self.teacher, *texts_of(examples), lambda logits: logits)
        return [
            tuple(replace(item, target=Soft(item.target, torch.tensor([row]))) for item in sample)
            for sample, row in zip(samples, rows, strict=True)
        ]

    def _by_window(self, samples: Sequence[Sample]) -> list[Tensor]:
        windows = [window for sample in samples for item in sample for window in item.windows]
        needed = self.teacher.head_pass(str(self.head), windows, tokens=self.each_token)
        outputs: list[Tensor] = self.teacher.run(windows, needed.compute)
        return outputs if self.each_token else [one[None] for one in outputs]

    def _soft(self, item: TrainingItem, outputs: Iterator[Tensor]) -> TrainingItem:
        rows = torch.cat([next(outputs) for _ in item.windows])
        return replace(item, target=Soft(item.target, rows))

    def outputs(self, model: Model, batch: Batch) -> Tensor:
        """The outputs of the task's head."""
        return self.base.outputs(model, batch)

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """The targets of the task, and the teacher's outputs."""
        plain = [replace(item, target=item.target.label) for item in items]
        return {
            **self.base.targets(plain),
            "teacher": torch.cat([item.target.rows for item in items]),
        }

    def padded(self, targets: Targets, sequences: int, tokens: int) -> Targets:
        """Fillers have outputs of zero, and no weight."""
        rest = {name: rows for name, rows in targets.items() if name != "teacher"}
        teacher = zero_padded(targets["teacher"], tokens if self.each_token else sequences)
        return {**self.base.padded(rest, sequences, tokens), "teacher": teacher}

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        """The divergence from the teacher; with a weight, the loss of the labels."""
        rest = {name: rows for name, rows in targets.items() if name != "teacher"}
        share = self.label_weight
        total = self.base.loss(outputs, batch, rest) * share if share else outputs.new_zeros(())
        if share < 1:
            soft = self.base.soft_loss(outputs, batch, targets, self.temperature)
            total = total + soft * (1 - share)
        return total

    def start_from_used(self, model: Model) -> None:
        """Make the teacher's head one that can be trained further."""
        self.base.start_from_used(model)

    @contextmanager
    def as_used(self, model: Model) -> Iterator[None]:
        """The model as it will be used."""
        with self.base.as_used(model):
            yield


# ------------------------------------------------------------------ tokens


def same_tokens(first: LoadedModel, second: LoadedModel) -> bool:
    """Do two models read a text as the same ids?"""
    one, other = first.tokenizer, second.tokenizer
    templates = all(one.template(pair) == other.template(pair) for pair in (False, True))
    pipelines = [
        (type(backend.model), str(backend.normalizer), str(backend.pre_tokenizer))
        for backend in (one.backend, other.backend)
    ]
    return templates and pipelines[0] == pipelines[1] and one.vocabulary() == other.vocabulary()


def demand_one_output(task: Task) -> None:
    """Refuse a task with outputs for tokens, where teacher and student have other tokens."""
    if not task.one_output:
        raise BertsmithError(
            "teacher and student split texts into different tokens, or read different lengths, and"
            f" {task.name} is learned token by token: take a student with the teacher's tokenizer"
        )
