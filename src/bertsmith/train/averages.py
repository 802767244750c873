"""The exponential moving average of weights, with bias correction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from bertsmith.train.distributed import reshard
from bertsmith.train.optimizer import local_shard


class Averages:
    """Exponential moving averages of parameters; disabled with a decay of 0.

    After t updates the weights of step s count (1 - decay) decay^(t-s) / (1 - decay^t): as with
    Adam's moments, the first value is not kept for as long as the average reaches back.
    """

    def __init__(self, named: Mapping[str, nn.Parameter], decay: float) -> None:
        self.named, self.decay, self.updates = named, decay, 0
        self.values: dict[str, Tensor] = {
            name: parameter.detach().clone() for name, parameter in named.items() if decay
        }

    @torch.no_grad()
    def update(self) -> None:
        """Update the averages with the current weights."""
        if self.values:
            self.updates += 1
            rate = (1 - self.decay) / (1 - self.decay**self.updates)
            weights = [local_shard(parameter) for parameter in self.named.values()]
            torch._foreach_lerp_([local_shard(one) for one in self.values.values()], weights, rate)

    @contextmanager
    def swapped_in(self, module: nn.Module) -> Iterator[None]:
        """Context manager: use the averages in place of the weights."""
        before = {name: self.named[name].detach().clone() for name in self.values}
        self.apply()
        reshard(module)
        try:
            yield
        finally:
            for name, value in before.items():
                self.named[name].data.copy_(value)
            reshard(module)

    def apply(self) -> None:
        """Replace the weights by the averages permanently."""
        for name, value in self.values.items():
            self.named[name].data.copy_(value)
