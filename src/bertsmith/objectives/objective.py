"""The interface of an objective, and the encoder pass that objectives share."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.examples import Example
from bertsmith.kernels import is_ampere
from bertsmith.model import Config, HeadConfig, Hidden, Model, Trace


class LossTerm(NamedTuple):
    """A loss as a sum; with its count from `counts`, batches and ranks add up."""

    name: str
    sum: Tensor
    correct: Tensor  # the number of correct predictions


class EncoderPass:
    """One pass of a model over an example's batch, computed when it is first needed."""

    def __init__(
        self, model: Model, example: Example, *, states: bool = False, compare: Any = None
    ) -> None:
        self.model, self.example, self.batch = model, example, example.batch
        self.compare = compare  # with all texts of the step, if there are more than the example's
        self.states = states  # whether the states of every depth are kept
        self.trace = Trace(states=states) if states else None
        self.outputs: dict[str, Tensor] = {}  # of heads at the example's masked tokens
        self.filled: EncoderPass | None = None  # over the text whose masks a generator filled

    @cached_property
    def hidden(self) -> Hidden:
        """The hidden states of the batch."""
        return self.model.encoder(self.batch, self.trace)

    def before(self, depth: int) -> Tensor:
        """Return the input states of the layer at this depth, if states are kept."""
        _ = self.hidden  # fills the trace
        assert self.trace is not None
        return self.trace.hidden[depth]

    def head(self, kind: str, rows: Tensor | None = None) -> Tensor:
        """The outputs of one head on these hidden states; at masked tokens, computed once."""
        if kind in self.outputs and rows is self.example.rows:
            return self.outputs[kind]
        output: Tensor = self.model.heads[kind](self.hidden, self.batch, rows)
        if rows is self.example.rows:
            self.outputs[kind] = output
        return output


class HeadPass(NamedTuple):
    """A head that an objective runs, for counts of operations."""

    model: Model
    head: str  # "": the encoder alone
    rows: float  # of hidden states that it reads
    reads: str = "batch"  # encoder passes of the same name are computed once; "": any of them


class Objective(nn.Module):
    """A training objective. It may have modules, such as a generator."""

    name: ClassVar[str]
    kind: ClassVar[str] = ""  # the head it trains; "": the encoder alone
    reads_states: ClassVar[bool] = False  # whether it needs the states of every depth
    format: ClassVar[str] = ""  # the data.format it needs: "next", "order"; "" is any
    compares: ClassVar[bool] = False  # whether its loss compares all texts of a step
    # Whether a CUDA graph can replay it. If so, it runs on the device only, `before_step` does
    # nothing, and additional rows with targets and labels of -100 do not change the loss.
    capturable: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.score = score
        self.outside: tuple[Model, ...] = ()  # models that are neither trained nor saved
        # Of the last pass: ratios to report, each a numerator and a denominator; and outside of
        # training the most probable tokens of each mask, as probabilities and ids (M, 3).
        self.ratios: dict[str, tuple[Tensor, Tensor]] = {}
        self.best: tuple[Tensor, Tensor] | None = None

    @staticmethod
    def head(config: Config) -> HeadConfig:
        """The head to add where a family's checkpoints have none of this kind."""
        raise NotImplementedError

    def counts(self, example: Example) -> dict[str, int]:
        """The number of predictions of each of its terms; by default one for each masked token."""
        return {self.name: len(example.rows)}

    def passes(self, model: Model, tokens: int, sequences: int, masked: float) -> list[HeadPass]:
        """The heads that it runs on a batch of so many tokens, sequences and masked tokens.

        By default its own head, on the masked tokens. The pass of a teacher is not counted.
        """
        return [HeadPass(model, self.kind, masked)]

    def terms(self, encoder_pass: EncoderPass, example: Example) -> list[LossTerm]:
        """The loss terms of an example."""
        raise NotImplementedError

    def guesses(self, name: str, logits: Tensor, targets: Tensor) -> LossTerm:
        """The term of predictions (M, outputs) whose labels are targets (M,)."""
        return LossTerm(name, *self.score(logits, targets))

    def place(self, device: torch.device) -> None:
        """Move the models outside to a device, on a GPU that computes in it in bfloat16."""
        dtype = torch.bfloat16 if is_ampere(device) else torch.float32
        for model in self.outside:
            model.to(device, dtype)

    def before_step(self) -> None:
        """Called before each optimizer step."""

    def after_step(self) -> None:
        """Called after each optimizer step."""


def score(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of cross entropies, computed in float32; and the number of correct predictions."""
    loss = F.cross_entropy(logits.float(), targets, reduction="sum")
    return loss, (logits.detach().argmax(-1) == targets).sum()


def best_guesses(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The probabilities and ids of the most probable outputs: (M, outputs) → (M, 3) each."""
    logits = logits.detach().float()
    best = logits.topk(min(3, logits.shape[-1]), dim=-1)
    return (best.values - logits.logsumexp(-1, keepdim=True)).exp(), best.indices
