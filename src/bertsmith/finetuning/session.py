"""The state of a training run: history, best weights, and its checkpoints on disk."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.train.averages import Averages
from bertsmith.train.distributed import Ranks
from bertsmith.train.optimizer import CompositeOptimizer
from bertsmith.train.state import Checkpoints, TensorState

QUICK = 0.05  # seconds: a checkpoint that is written faster is written after every epoch
SPARE = 10  # a slower one is written when ten times as long as it takes has passed


@dataclass
class History:
    """What happened in a run."""

    losses: list[float] = field(default_factory=list)  # of each step
    epochs: list[dict[str, Any]] = field(default_factory=list)
    best: int = 0  # the epoch that was kept, from 1
    steps: int = 0
    planned: int = 0  # steps, if it does not stop early
    examples: int = 0
    seconds: float = 0.0  # of training, without evaluation

    @property
    def speed(self) -> float:
        """Examples per second."""
        return self.examples / self.seconds if self.seconds else 0.0


class Session:
    """One run in progress; with a folder, it is stored after each epoch and can be resumed."""

    def __init__(self, folder: Path | None = None) -> None:
        self.history = History()
        self.best: dict[str, Tensor] = {}  # the trained weights of the best epoch
        self.highest = -math.inf  # its score
        self.waited = 0  # epochs since there was a better one
        self.checkpoints = None if folder is None else Checkpoints(folder, keep=1)
        self._stored = (-math.inf, 0.0)  # when a checkpoint was written, and how long it took

    @property
    def epoch(self) -> int:
        """The number of epochs that are finished."""
        return len(self.history.epochs)

    @property
    def stored(self) -> bool:
        """Is there a checkpoint to resume from?"""
        return self.checkpoints is not None and bool(self.checkpoints.steps())

    def consider(self, score: float | None, model: nn.Module, always: bool) -> None:
        """Take the weights as they are if their score is the best; without a score, always.

        Of equal scores the later wins: with few dev examples scores tie while losses still fall.
        """
        value = math.inf if score is None else -math.inf if math.isnan(score) else score
        if value >= self.highest or always or score is None or not self.best:
            self.best = {
                name: weights.detach().clone()
                for name, weights in model.named_parameters()
                if weights.requires_grad
            }
            self.history.best = self.epoch + 1
        self.waited = 0 if value > self.highest else self.waited + 1
        self.highest = max(self.highest, value)

    @torch.no_grad()
    def restore(self, model: nn.Module) -> None:
        """Give a model the weights of the best epoch."""
        for name, weights in self.best.items():
            model.get_parameter(name).copy_(weights)

    def store(self, model: nn.Module, optimizer: CompositeOptimizer, ledger: Ledger) -> None:
        """Write a checkpoint, unless that takes long and one was written a short time ago."""
        if self.checkpoints is None:
            return
        began = time.monotonic()
        last, took = self._stored
        if took > QUICK and began - last < SPARE * took:
            return
        tensors = _tensors(model, optimizer).gather(Ranks.alone(next(model.parameters()).device))
        best = {name: value.cpu() for name, value in self.best.items()}
        numbers = {
            "history": asdict(self.history),
            "highest": self.highest,
            "waited": self.waited,
            "ledger": dict(ledger.counts),
            "averaged": 0,
        }
        self.checkpoints.save(self.epoch, {**tensors, "best": best}, numbers)
        self._stored = time.monotonic(), time.monotonic() - began

    def resume(self, model: nn.Module, optimizer: CompositeOptimizer, ledger: Ledger) -> None:
        """Go on from the newest whole checkpoint, if there is one."""
        saved = None if self.checkpoints is None else self.checkpoints.newest()[0]
        if saved is None:
            return
        try:
            _tensors(model, optimizer).load(saved)
            numbers = saved.numbers
            device = next(model.parameters()).device
            self.best = {name: value.to(device) for name, value in saved.tensors["best"].items()}
            self.history = History(**numbers["history"])
            self.highest, self.waited = numbers["highest"], numbers["waited"]
            ledger.counts |= Counter(numbers["ledger"])  # the larger of both
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise BertsmithError(
                f"{self.checkpoints.folder if self.checkpoints else ''}: these checkpoints are of"
                " another model; remove the folder to start again"
            ) from error

    def discard(self) -> None:
        """Remove the checkpoints."""
        if self.checkpoints is not None:
            rmtree(self.checkpoints.folder, ignore_errors=True)


def _tensors(model: nn.Module, optimizer: CompositeOptimizer) -> TensorState:
    named: Mapping[str, nn.Parameter] = dict(model.named_parameters())
    return TensorState(named, optimizer, Averages(named, 0.0))
