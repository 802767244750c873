"""Learning labels, several labels or numbers of texts and of pairs of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean, pstdev
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bertsmith.batch import Batch
from bertsmith.data import Dataset, label_names
from bertsmith.errors import BertsmithError
from bertsmith.finetune.lesson import Lesson
from bertsmith.finetune.losses import choice_loss, several_loss
from bertsmith.finetune.pieces import Piece, Sample
from bertsmith.finetune.settings import Settings
from bertsmith.finetune.weights import class_weights
from bertsmith.model import Model
from bertsmith.tasks.loaded import LoadedModel


def named(labels: Sequence[str], problem: str) -> dict[str, Any]:
    """What config.json says of labels: their names, so that no order is ever assumed."""
    return {
        "id2label": {str(number): name for number, name in enumerate(labels)},
        "label2id": {name: number for number, name in enumerate(labels)},
        "num_labels": len(labels),
        "problem_type": problem,
    }


class Labelling(Lesson):
    """What all kinds of labels share: every window of a long text learns the text's label.

    The windows of one text share its weight by their length, so that it counts as one.
    """

    head = "classify"
    problem: ClassVar[str]

    def __init__(self, dataset: Dataset[Any], settings: Settings) -> None:
        super().__init__(dataset, settings)
        self.labels = dataset.labels
        self.place = {name: number for number, name in enumerate(self.labels)}

    def changes(self) -> dict[str, Any]:
        """The names of the labels."""
        return named(self.labels, self.problem)

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """A piece for each window."""
        pairs = [example.pair for example in examples]
        second = None if all(pair is None for pair in pairs) else [pair or "" for pair in pairs]
        texts = [example.text for example in examples]
        grouped: list[list[Piece]] = [[] for _ in examples]
        for window in bert.windows(texts, second, how=self.windower(bert)):
            example = examples[window.number]
            weight = self.weight(example) * max(1, len(window.tokens))
            grouped[window.number].append(Piece((window,), self.target(example), weight))
        return [
            _shared(group, self.weight(one)) for group, one in zip(grouped, examples, strict=True)
        ]

    def target(self, example: Any) -> Any:
        """What an example's windows are to learn."""
        raise NotImplementedError

    def weight(self, example: Any) -> float:
        """How much an example counts."""
        return 1.0


def _shared(group: Sequence[Piece], weight: float) -> Sample:
    """The same pieces, whose weights together are the example's."""
    total = sum(piece.weight for piece in group)
    share = weight / total if total else 0.0
    return tuple(Piece(one.windows, one.target, one.weight * share) for one in group)


class OneLabel(Labelling):
    """One of several classes."""

    problem = "single_label_classification"

    def __init__(self, dataset: Dataset[Any], settings: Settings) -> None:
        super().__init__(dataset, settings)
        if len(self.labels) < 2:
            only = ", ".join(map(repr, self.labels)) or "none"
            raise BertsmithError(
                f"{dataset.path}: two labels or more are needed to train"
                f" on; there is {only} (without --dev a share of the file is held out)"
            )
        seen = (example.label for example in dataset.gold())
        self.weights = class_weights(settings.class_weights, self.labels, seen)

    def target(self, example: Any) -> int:
        """The number of its label."""
        return self.place[example.label]

    def weight(self, example: Any) -> float:
        """Its class's."""
        return self.weights[self.target(example)]

    def loss(self, outputs: Tensor, batch: Batch, pieces: Sequence[Piece]) -> Tensor:
        """Cross entropy."""
        targets = torch.tensor([piece.target for piece in pieces], device=outputs.device)
        loss = choice_loss(
            outputs, targets, focal=self.settings.focal, smoothing=self.settings.smoothing
        )
        return (loss * weights_of(pieces, outputs)).sum()


class SeveralLabels(Labelling):
    """Any number of labels for each text."""

    problem = "multi_label_classification"

    def __init__(self, dataset: Dataset[Any], settings: Settings) -> None:
        super().__init__(dataset, settings)
        if not self.labels:
            raise BertsmithError(f"{dataset.path}: there are no labels in it")
        seen = (name for example in dataset.gold() for name in label_names(example))
        self.weights = class_weights(settings.class_weights, self.labels, seen)

    def target(self, example: Any) -> tuple[int, ...]:
        """The numbers of its labels."""
        return tuple(self.place[name] for name in example.labels)

    def loss(self, outputs: Tensor, batch: Batch, pieces: Sequence[Piece]) -> Tensor:
        """Binary cross entropy, each label by its weight where it applies."""
        targets = torch.zeros_like(outputs)
        for row, piece in enumerate(pieces):
            targets[row, list(piece.target)] = 1.0
        loss = several_loss(
            outputs, targets, focal=self.settings.focal, smoothing=self.settings.smoothing
        )
        heavy = torch.tensor(self.weights, device=outputs.device)
        loss = (loss * torch.where(targets > 0.5, heavy, 1.0)).mean(-1)
        return (loss * weights_of(pieces, outputs)).sum()


class Number(Labelling):
    """A number for each text.

    What is learned is how far a number lies from the mean, in deviations, whatever its unit; the
    last layer of the finished model gives the number itself.
    """

    problem = "regression"

    def __init__(self, dataset: Dataset[Any], settings: Settings) -> None:
        super().__init__(dataset, settings)
        if settings.class_weights:
            raise BertsmithError("class weights are for labels; numbers have none")
        scores = [example.score for example in dataset.gold()]
        self.mean, self.deviation = fmean(scores), pstdev(scores)
        if not self.deviation:
            raise BertsmithError(f"{dataset.path}: all scores are {self.mean:g}: nothing to learn")
        self.labels = ("score",)

    def target(self, example: Any) -> float:
        """Its score, in deviations from the mean."""
        return float(example.score - self.mean) / self.deviation

    def loss(self, outputs: Tensor, batch: Batch, pieces: Sequence[Piece]) -> Tensor:
        """Squared difference."""
        targets = torch.tensor([piece.target for piece in pieces], device=outputs.device)
        return ((outputs[:, 0] - targets).square() * weights_of(pieces, outputs)).sum()

    @contextmanager
    def settled(self, model: Model) -> Iterator[None]:
        """Let the last layer speak in the file's unit."""
        output = model.heads["classify"].output
        assert isinstance(output, nn.Linear)
        self._scale(output, self.deviation, self.mean)
        try:
            yield
        finally:
            self._scale(output, 1 / self.deviation, -self.mean / self.deviation)

    @staticmethod
    @torch.no_grad()
    def _scale(output: nn.Linear, factor: float, shift: float) -> None:
        output.weight.mul_(factor)
        output.bias.mul_(factor).add_(shift)


def weights_of(pieces: Sequence[Piece], like: Tensor) -> Tensor:
    """The weights of pieces (N,)."""
    return torch.tensor([piece.weight for piece in pieces], device=like.device)
