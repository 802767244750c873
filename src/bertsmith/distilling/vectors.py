"""Distillation of vectors: a student learns the vectors of one or more sentence encoders."""

import hashlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from bertsmith.batch import Batch
from bertsmith.checkpoint.dense import IDENTITY, Dense
from bertsmith.distilling.pieces import pieces_of
from bertsmith.distilling.speed import compare_speed
from bertsmith.distilling.static import principal_components
from bertsmith.distilling.task import Distillation
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.examples.draw import shuffled
from bertsmith.files import atomic
from bertsmith.finetuning.result import TrainingRun
from bertsmith.finetuning.settings import RunSettings
from bertsmith.finetuning.work import model_sum
from bertsmith.infer.loaded import LoadedModel, with_changes
from bertsmith.infer.windows import Window
from bertsmith.metrics import spearman
from bertsmith.model import Model
from bertsmith.numbers import whole_number
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.embedding import embed
from bertsmith.tasks.read import open_data
from bertsmith.tasks.regression.reading import Scored
from bertsmith.tasks.similarity.task import TASK, VectorTraining
from bertsmith.tasks.training import Sample, Targets, TaskOptions, Training, TrainingItem

MOST_HELD = 1000  # texts that the agreement with the teacher is measured on
SHARE = 0.1  # of all texts
FITTED_ON = 50_000  # vectors that principal components are computed from
Vectors = NDArray[Any]
Project = Callable[[Vectors], Vectors]


@dataclass(frozen=True)
class Teachers:
    """One or more sentence encoders, whose vectors of a text are one vector.

    Vectors of several have length 1 each; "join" puts them end to end, "average" adds them. `cache`
    is a folder that keeps them for other runs on the same texts.
    """

    models: tuple[LoadedModel, ...]
    combine: str = "join"
    cache: Path | None = None
    sums: tuple[str, ...] = ()  # of the files of each model

    def __post_init__(self) -> None:
        widths = {one.vector_width for one in self.models}
        if self.combine == "average" and len(widths) > 1:
            listed = " and ".join(str(one) for one in sorted(widths))
            raise BertsmithError(f"vectors of widths {listed} cannot be averaged: join them")

    @property
    def normalised(self) -> bool:
        """Do all vectors have length 1?"""
        return len(self.models) > 1 or self.models[0].sentence.normalise

    @property
    def width(self) -> int:
        """The width of the vectors."""
        widths = [one.vector_width for one in self.models]
        return sum(widths) if self.combine == "join" else widths[0]

    def vectors(self, texts: Sequence[str], direction: bool) -> Vectors:
        """The vectors of texts (N, D); of length 1 if only their direction matters."""
        each = [embed(one, texts, normalise=direction or self.normalised) for one in self.models]
        if len(each) == 1:
            return each[0]
        if self.combine == "join":
            return np.concatenate(each, 1) * np.float32(len(each) ** -0.5)
        total: Vectors = np.sum(each, 0)
        return total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), np.float32(1e-12))

    def stored(self, texts: Sequence[str], *how: Any) -> Path | None:
        """The file that keeps the vectors of these texts, where there is a folder for it."""
        if self.cache is None or not self.cache.is_dir():
            return None
        total = hashlib.sha256(repr([self.sums, self.combine, how]).encode())
        for text in texts:
            total.update(text.encode("utf-8", "surrogatepass") + b"\0")
        return self.cache / f"vectors-{total.hexdigest()[:24]}.npy"


class TeacherVectors(VectorTraining):
    """The vector of each text is to be its teachers'.

    "cosine" compares directions; "mse" the vectors themselves, unless all models normalise. Shorter
    vectors are learned as the teachers' principal components, the most important ones first.
    """

    learned = 0.0
    exact = False

    def __init__(
        self, dataset: Dataset[Any], options: TaskOptions, own: "VectorDistillation"
    ) -> None:
        super().__init__(dataset, options)
        self.teachers, self.project = own.teachers, own.project
        self.direction = own.loss == "cosine" or own.teachers.normalised

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """An item for each text; its target is the row of the teachers' vector."""
        self.sentence, texts = bert.sentence, [example.text for example in examples]
        self.goals = self._goals(bert, texts)
        how = bert.windower(overlap=0, limit=bert.sentence.max_length)
        windows: list[list[Window]] = [[] for _ in texts]
        for window in bert.windows([bert.sentence.prepared(text) for text in texts], how=how):
            # Arrays of numbers, which are copied at once into a batch.
            ids, segments = array("q", window.ids), array("q", window.segments)
            copy = Window(0, ids, segments, window.tokens, window.first)
            windows[window.number].append(copy)
        return [(TrainingItem(tuple(own), row),) for row, own in enumerate(windows)]

    def _goals(self, bert: LoadedModel, texts: Sequence[str]) -> Tensor:
        """The teachers' vectors (N, D), as narrow as the student's; computed once."""
        kinds = [str(next(one.model.parameters()).dtype) for one in self.teachers.models]
        projected, width = self.project is not None, bert.vector_width
        path = self.teachers.stored(texts, self.direction, projected, width, kinds)
        if path is not None and path.is_file():
            return torch.from_numpy(np.load(path))
        vectors = self.teachers.vectors(texts, self.direction)
        if self.project is not None:
            vectors = self.project(vectors)
        elif width < vectors.shape[1]:
            some = shuffled(np.arange(len(vectors)), len(vectors), 0, "components")[:FITTED_ON]
            # From the origin and not their centre: cosines stay as they are.
            vectors = principal_components(vectors[some], width)(vectors, np.zeros(1))
        goals = np.ascontiguousarray(vectors, dtype=np.float32)
        if path is not None and (bert.ranks is None or bert.ranks.first):
            with atomic(path) as stream:
                np.save(stream, goals)
        return torch.from_numpy(goals)

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """The teachers' vectors (texts, D), too."""
        rows = torch.tensor([item.target for item in items])
        return {**super().targets(items), "goals": self.goals[rows]}

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        """Squared distance of directions, or of the vectors themselves."""
        if self.direction:
            return super().loss(outputs, batch, targets)
        distances = (self.means(outputs, targets) - targets["goals"]).square().sum(-1)
        return (distances * targets["weights"]).sum()

    def vector_loss(self, vectors: Tensor, targets: Targets) -> Tensor:
        """Squared distance of unit vectors: twice one minus the cosine."""
        goals = F.normalize(targets["goals"][:, : vectors.shape[1]], dim=-1)
        return ((vectors - goals).square().sum(-1) * targets["weights"]).sum()


@dataclass(frozen=True)
class VectorDistillation(Distillation):
    """A student that learns its teachers' vectors."""

    loss: str
    project: Project | None
    held: list[str]  # texts on which the agreement with the teachers is measured
    teachers: Teachers
    further: tuple[str, ...] = ()  # the names of further teachers
    width: int | None = None  # of the student's vectors

    def learn(self, train: Dataset[Any], settings: RunSettings) -> TeacherVectors:
        """The teachers' vectors."""
        return TeacherVectors(train, settings, self)

    def open(self, training: Training, settings: RunSettings, device: torch.device) -> LoadedModel:
        """The student before its first step."""
        student = super().open(training, settings, device)
        most, width = self.teachers.width, student.vector_width
        if self.width is not None:
            width = whole_number(self.width, "width", 1, most)
        elif width > most:
            raise BertsmithError(f"the student (width {width}) is wider than its teacher ({most})")
        if width != student.vector_width:
            if settings.parallel == "fsdp":
                needed = setting_name("parallel", "ddp")
                raise BertsmithError(f"vectors of another width need {needed}")
            add_projection(student, width, settings.seed)
        return student

    def alone(self) -> Self:
        """The same for the one process that compares teachers and student."""
        models = tuple(map(with_changes, self.teachers.models))
        return replace(self, teacher=models[0], teachers=replace(self.teachers, models=models))

    def same(self) -> dict[str, Any]:
        """Teachers, student and the loss."""
        own = {"loss": self.loss, "student": self.student.describe(), "width": self.width}
        others = [model_sum(one) for one in self.further]
        return super().same() | own | {"further teachers": [*others, self.teachers.combine]}

    def compared(self, kept: TrainingRun) -> dict[str, Any]:
        """The student beside its teacher: the content of distill.json."""
        student = kept.bert
        settle_projection(student)
        texts = self.held or [one.text for one in self.splits.train.examples[:MOST_HELD]]
        kind = "vectors" if student.model.encoder.plan else "static"
        settings: dict[str, Any] = {"loss": self.loss}
        if self.further:
            settings |= {"further_teachers": list(self.further), "combine": self.teachers.combine}
        return self.report(
            kept,
            {"kind": kind, "about": f"{self.student.describe()}, trained on its vectors of texts"},
            settings,
            self.pairs(kept),
            agreement={"held_out": agreement(self.teachers, student, texts)} if self.held else {},
            speed=compare_speed(self.teacher, student, embed, texts),
            notes=[],
        )


def add_projection(student: LoadedModel, width: int, seed: int) -> None:
    """Give a student a linear layer after the pooling, which is trained with it."""
    if student.sentence.dense:
        raise BertsmithError("the student has Dense modules already: its width cannot be changed")
    linear = nn.Linear(student.checkpoint.config.width, width, bias=False, device="cpu")
    nn.init.orthogonal_(linear.weight, generator=torch.Generator().manual_seed(seed))
    student.model.projection = linear.to(student.device)
    # The module of the vectors and the trained layer share one tensor.
    dense = Dense(student.model.projection.weight, None, IDENTITY)
    student.sentence = replace(student.sentence, dense=(dense,))


def settle_projection(student: LoadedModel) -> None:
    """Make the trained linear layer a Dense module of the model's directory."""
    if hasattr(student.model, "projection"):
        weight = student.model.projection.weight.detach().cpu()  # type: ignore[union-attr, operator]
        del student.model.projection
        student.sentence = replace(student.sentence, dense=(Dense(weight, None, IDENTITY),))


def agreement(teachers: Teachers, student: LoadedModel, texts: Sequence[str]) -> dict[str, Any]:
    """The rank correlation of cosines of random pairs; for equal widths also the mean cosine."""
    first, second = teachers.vectors(texts, True), embed(student, texts, normalise=True)
    order = shuffled(np.arange(len(texts)), len(texts), 0, "pairs")
    cosines = [np.einsum("nd,nd->n", one, one[order]) for one in (first, second)]
    correlation = spearman(*(one.tolist() for one in cosines))
    result: dict[str, Any] = {"texts": len(texts), "spearman_of_cosines": correlation}
    if first.shape == second.shape:
        result["mean_cosine"] = float(np.einsum("nd,nd->n", first, second).mean())
    return result


def headless(bert: LoadedModel) -> LoadedModel:
    """The same encoder without heads: whatever it was trained for, it makes vectors."""
    return with_changes(bert, Model(bert.model.encoder, {}).eval(), bert.ranks, entries={})


def read_plain(
    data: Any, pieces: int | None = None, **options: Any
) -> tuple[Dataset[Any], list[str]]:
    """Texts, or `pieces` of so many words, each once; some are held out to measure agreement."""
    if pieces is not None:
        pieces = whole_number(pieces, "pieces", 1)
    source = open_data(data, "text", **options)
    places: dict[str, Any] = {}
    for row in chain.from_iterable(portion.examples for portion in source.portions()):
        if row is not None and row.text.strip():
            for text in pieces_of(row.text, pieces) if pieces else (row.text,):
                places.setdefault(text, row.where)
    texts = list(places)
    order = shuffled(np.arange(len(texts)), len(texts), 0, "held out").tolist()
    count = min(MOST_HELD, int(len(texts) * SHARE))
    held, rest = ([texts[n] for n in sorted(part)] for part in (order[:count], order[count:]))
    if not rest:
        raise BertsmithError(f"{source.path}: contains no texts")
    examples = [Scored(text, None, 0.0, places[text]) for text in rest]
    return Dataset(source.path, TASK.name, examples, ledger=source.ledger), held
