"""The protocol of an objective, and the pass over a batch that objectives share."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.batch import Batch
from bertsmith.examples import Example
from bertsmith.model import Config, HeadConfig, Hidden, Model


class LossTerm(NamedTuple):
    """A loss as a sum, whose count `counts` tells: those of many batches and ranks add up."""

    name: str
    sum: Tensor
    right: Tensor  # how many of the guesses were right


class EncoderPass:
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

    def __init__(self) -> None:
        super().__init__()
        self.score = score
        self.ratios: dict[str, tuple[Tensor, Tensor]] = {}  # of the last terms: a part, the whole

    @staticmethod
    def head(config: Config) -> HeadConfig:
        """The head it needs, for families whose checkpoints have none of this kind."""
        raise NotImplementedError

    def counts(self, example: Example) -> dict[str, int]:
        """How many guesses each of its terms makes on an example."""
        raise NotImplementedError

    def terms(self, encoder_pass: EncoderPass, example: Example) -> list[LossTerm]:
        """Its loss terms."""
        raise NotImplementedError

    def guesses(self, name: str, logits: Tensor, targets: Tensor) -> LossTerm:
        """The term of guesses (M, outputs) that should have been targets (M,)."""
        return LossTerm(name, *self.score(logits, targets))

    def before_step(self) -> None:
        """Called before the optimizer changes the weights."""

    def after_step(self) -> None:
        """Called after the optimizer has changed them."""


def score(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Cross entropy of choices among many, computed in float32; and how many were right."""
    loss = F.cross_entropy(logits.float(), targets, reduction="sum")
    return loss, (logits.detach().argmax(-1) == targets).sum()
