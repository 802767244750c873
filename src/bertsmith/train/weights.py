"""Copies of a run's weights: their exponential moving average, and the best by evaluation."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bertsmith.train.distributed import assign, is_sharded, reshard
from bertsmith.train.optimizer import local_shard

Take = Literal["best", "last", "none"]


class Averages:
    """Exponential moving averages of parameters, with bias correction; disabled by a decay of 0.

    After t updates the weights of step s count (1 - decay) decay^(t-s) / (1 - decay^t): as with
    Adam's moments, the first value is not kept for as long as the average reaches back.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], decay: float) -> None:
        self.parameters, self.decay, self.updates = parameters, decay, 0
        averaged = parameters if decay else {}
        self.values = {name: parameter.detach().clone() for name, parameter in averaged.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Update the averages with the current weights."""
        if self.values:
            self.updates += 1
            rate = (1 - self.decay) / (1 - self.decay**self.updates)
            weights = [local_shard(parameter) for parameter in self.parameters.values()]
            averages = [local_shard(value) for value in self.values.values()]
            torch._foreach_lerp_(averages, weights, rate)

    @contextmanager
    def swapped_in(self, module: nn.Module) -> Iterator[None]:
        """Context manager: use the averages in place of the weights."""
        before = {name: self.parameters[name].detach().clone() for name in self.values}
        self.apply(self.values)
        reshard(module)
        try:
            yield
        finally:
            self.apply(before)
            reshard(module)

    def apply(self, values: Mapping[str, Tensor] | None = None) -> None:
        """Replace the weights, by default by the averages."""
        for name, value in (values or self.values).items():
            self.parameters[name].data.copy_(value)


class Best:
    """A copy of the weights at the best evaluation (or by `take` the last), and how long ago."""

    def __init__(self, take: Take = "none") -> None:
        self.take = take
        self.weights: dict[str, Tensor] = {}
        self.step = 0  # at which they were taken
        self.highest = -math.inf  # the best score
        self.waited = 0  # evaluations since there was a better one

    def consider(self, score: float, step: int, parameters: Mapping[str, nn.Parameter]) -> None:
        """Copy the weights if their score is the best so far; of equal scores the later wins."""
        # With few examples scores tie while losses still fall.
        value = -math.inf if math.isnan(score) else score
        better = self.take == "last" or value >= self.highest or not self.weights
        if better and self.take != "none":
            trained = ((name, p) for name, p in parameters.items() if p.requires_grad)
            self.weights = {name: parameter.detach().clone() for name, parameter in trained}
            self.step = step
        self.waited = 0 if value > self.highest else self.waited + 1
        self.highest = max(self.highest, value)

    @torch.no_grad()
    def restore(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Copy the best weights, if there are any, into a model's parameters."""
        for name, weights in self.weights.items():
            if is_sharded(weights):
                parameters[name].copy_(weights)
            else:
                assign(parameters[name], weights)

    def numbers(self) -> dict[str, Any]:
        """All but the weights, as JSON."""
        return {"step": self.step, "highest": str(self.highest), "waited": self.waited}

    def load(self, numbers: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        """Restore the state of a checkpoint."""
        if numbers:
            self.step, self.waited = numbers["step"], numbers["waited"]
            self.highest = float(numbers["highest"])
        self.weights = dict(weights)
