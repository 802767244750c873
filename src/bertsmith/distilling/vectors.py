"""Distillation of vectors: a student learns the vectors of a sentence encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.distilling.speed import compare_speed
from bertsmith.distilling.static import principal_components
from bertsmith.distilling.task import Distillation
from bertsmith.errors import BertsmithError
from bertsmith.examples.draw import shuffled
from bertsmith.finetuning.result import Run
from bertsmith.finetuning.settings import Settings
from bertsmith.infer.loaded import LoadedModel
from bertsmith.metrics import spearman
from bertsmith.model import Model
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.embedding import embed
from bertsmith.tasks.read import open_data
from bertsmith.tasks.regression.reading import Scored
from bertsmith.tasks.similarity.task import TASK, VectorTraining
from bertsmith.tasks.training import Sample, Targets, TaskOptions, Training, TrainingItem

MOST_HELD = 1000  # texts that the agreement with the teacher is measured on
SHARE = 0.1  # of all texts
Project = Callable[[NDArray[Any]], NDArray[Any]]


class TeacherVectors(VectorTraining):
    """The vector of each text is to be its teacher's.

    "cosine" compares directions; "mse" the vectors themselves, unless both models normalise.
    """

    learned = 0.0

    def __init__(
        self,
        dataset: Dataset[Any],
        options: TaskOptions,
        teacher: LoadedModel,
        loss: str,
        project: Project | None,
    ) -> None:
        super().__init__(dataset, options)
        self.teacher, self.project = teacher, project
        self.direction = loss == "cosine" or teacher.sentence.normalise

    def target(self, example: Any) -> None:
        """The teacher's vector, which is computed for all texts at once."""

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """An item for each text, with the teacher's vector."""
        goals = self.goals(bert, [example.text for example in examples])
        plain = super().samples(bert, examples)
        return [
            tuple(replace(item, target=goal) for item in sample)
            for sample, goal in zip(plain, goals, strict=True)
        ]

    def goals(self, bert: LoadedModel, texts: Sequence[str]) -> Tensor:
        """The teacher's vectors (N, D); for a narrower student, their principal components."""
        vectors = embed(self.teacher, texts, normalise=self.direction)
        width = bert.vector_width
        if self.project is not None:
            goals = self.project(vectors)
        elif width < vectors.shape[1]:
            goals = principal_components(vectors, width)(vectors)
        else:
            goals = vectors
        return torch.from_numpy(np.ascontiguousarray(goals, dtype=np.float32))

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """The teacher's vectors (texts, D), too."""
        plain = [replace(item, target=None) for item in items]
        return {**super().targets(plain), "goals": torch.stack([item.target for item in items])}

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        """Squared distance: of unit vectors, twice one minus the cosine."""
        goals = targets["goals"]
        if self.direction:
            vectors, goals = self.vectors(outputs, targets), torch.nn.functional.normalize(goals)
        else:
            vectors = self.means(outputs, targets)
        return ((vectors - goals).square().sum(-1) * targets["weights"]).sum()


@dataclass(frozen=True)
class VectorDistillation(Distillation):
    """A student that learns its teacher's vectors."""

    loss: str
    project: Project | None
    held: list[str]  # texts on which the agreement with the teacher is measured

    def learn(self, train: Dataset[Any], settings: Settings) -> TeacherVectors:
        """The teacher's vectors."""
        return TeacherVectors(train, settings, self.teacher, self.loss, self.project)

    def open(self, training: Training, settings: Settings, device: torch.device) -> LoadedModel:
        """The student before its first step."""
        student = super().open(training, settings, device)
        wide, most = student.vector_width, self.teacher.vector_width
        if wide > most:
            raise BertsmithError(f"the student (width {wide}) is wider than its teacher ({most})")
        return student

    def same(self) -> dict[str, Any]:
        """Teacher, student and the loss."""
        return super().same() | {"loss": self.loss, "student": self.student.describe()}

    def compared(self, kept: Run) -> dict[str, Any]:
        """The student beside its teacher: the content of distill.json."""
        student, teacher = kept.bert, self.teacher
        texts = self.held or [one.text for one in self.splits.train.examples[:MOST_HELD]]
        kind = "vectors" if student.model.encoder.plan else "static"
        return self.report(
            kept,
            {"kind": kind, "about": f"{self.student.describe()}, trained on its vectors of texts"},
            {"loss": self.loss},
            self.pairs(kept),
            agreement={"held_out": agreement(teacher, student, texts)} if self.held else {},
            speed=compare_speed(teacher, student, embed, texts),
            notes=[],
        )


def agreement(teacher: LoadedModel, student: LoadedModel, texts: Sequence[str]) -> dict[str, Any]:
    """How alike two models see texts: the rank correlation of the cosines of random pairs.

    Models of the same width also have the mean cosine of their two vectors of a text.
    """
    first, second = (embed(one, texts, normalise=True) for one in (teacher, student))
    order = shuffled(np.arange(len(texts)), len(texts), 0, "pairs")
    cosines = [np.einsum("nd,nd->n", one, one[order]) for one in (first, second)]
    result: dict[str, Any] = {
        "texts": len(texts),
        "spearman_of_cosines": spearman(*(one.tolist() for one in cosines)),
    }
    if first.shape == second.shape:
        result["mean_cosine"] = float(np.einsum("nd,nd->n", first, second).mean())
    return result


def headless(bert: LoadedModel) -> LoadedModel:
    """The same encoder without heads: whatever it was trained for, it makes vectors."""
    model = Model(bert.model.encoder, {}).eval()
    checkpoint = replace(bert.checkpoint, model=model, entries={})
    return LoadedModel(
        checkpoint, bert.tokenizer, sentence=bert.sentence, progress=False, ranks=bert.ranks
    )


def read_plain(data: Any, **options: Any) -> tuple[Dataset[Any], list[str]]:
    """Texts to learn from, each once, and those that are held out to measure the agreement on."""
    source = open_data(data, "text", **options)
    examples: dict[str, Any] = {}
    for part in source.portions():
        for one in part.examples:
            if one is not None and one.text.strip():
                examples.setdefault(one.text, one.where)
    listed = [Scored(text, None, 0.0, where) for text, where in examples.items()]
    order = shuffled(np.arange(len(listed)), len(listed), 0, "held out")
    count = min(MOST_HELD, int(len(listed) * SHARE))
    held = {int(place) for place in order[:count]}
    rest = [one for place, one in enumerate(listed) if place not in held]
    if not rest:
        raise BertsmithError(f"{source.path}: contains no texts")
    dataset: Dataset[Any] = Dataset(source.path, TASK.name, rest, ledger=source.ledger)
    return dataset, [listed[place].text for place in sorted(held)]
