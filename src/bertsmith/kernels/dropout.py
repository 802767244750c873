"""Dropout on a CPU: four elements per random number, where torch draws one for each."""

from typing import Any

import torch
from torch import Tensor, nn

STEPS = 1 << 16  # resolution of the dropout probability


class Dropout(nn.Dropout):
    """`nn.Dropout`, faster on a CPU, where it takes a tenth of a small model's step."""

    def forward(self, x: Tensor) -> Tensor:
        """Zero random elements in training, and scale up the rest."""
        drops = self.training and 0 < round(self.p * STEPS) < STEPS
        if drops and x.device.type == "cpu" and not torch.compiler.is_compiling():
            return Dropped.apply(x, self.p)  # type: ignore[no-untyped-call]
        return super().forward(x)


class Dropped(torch.autograd.Function):
    """Dropout; dropped elements get no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, probability: float) -> Tensor:
        """Draw four elements per 64-bit random number."""
        cut = round(probability * STEPS)
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        drawn = bits.view(torch.int16)[: x.numel()].view(x.shape)
        ctx.dropped = drawn < cut - STEPS // 2
        ctx.scale = STEPS / (STEPS - cut)
        return (x * ctx.scale).masked_fill_(ctx.dropped, 0.0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Zero the gradients of the same elements."""
        return (grad * ctx.scale).masked_fill_(ctx.dropped, 0.0), None
