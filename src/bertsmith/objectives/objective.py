"""The protocol of an objective, and the pass over a batch that objectives share."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from bertsmith.batch import Batch
from bertsmith.examples import Example
from bertsmith.model import Config, HeadConfig, Hidden, Model


class LossTerm(NamedTuple):
    """A loss as a sum over a count: terms of many batches and ranks add up exactly."""

    name: str
    sum: Tensor
    count: int
    right: Tensor  # how many of the count were guessed right


class View:
    """One pass of a model over an example's batch, made when it is first asked for."""

    def __init__(self, model: Model, example: Example) -> None:
        self.model, self.batch = model, example.batch

    @cached_property
    def hidden(self) -> Hidden:
        """What the encoder makes of the batch."""
        return self.model.encoder(self.batch)

    def head(self, kind: str, rows: Tensor | None = None, batch: Batch | None = None) -> Tensor:
        """The outputs of one head on that pass."""
        return self.model.heads[kind](self.hidden, batch or self.batch, rows)


class Objective(nn.Module):
    """A way to learn from examples. It may own modules of its own, as a generator is."""

    name: ClassVar[str]
    kind: ClassVar[str]  # the head it trains
    format: ClassVar[str] = ""  # the pairs it needs: "next", "order"; else any

    @staticmethod
    def head(config: Config) -> HeadConfig:
        """The head it needs, for families whose checkpoints have none of this kind."""
        raise NotImplementedError

    def counts(self, example: Example) -> dict[str, int]:
        """How many guesses each of its terms makes on an example."""
        raise NotImplementedError

    def terms(self, view: View, example: Example) -> list[LossTerm]:
        """Its loss terms."""
        raise NotImplementedError

    def before_step(self) -> None:
        """Called before the optimizer changes the weights."""

    def after_step(self) -> None:
        """Called after the optimizer has changed them."""


def guesses(name: str, logits: Tensor, targets: Tensor) -> LossTerm:
    """Cross entropy of a choice among many, computed in float32."""
    loss = torch.nn.functional.cross_entropy(logits.float(), targets, reduction="sum")
    right = (logits.detach().argmax(-1) == targets).sum()
    return LossTerm(name, loss, len(targets), right)
