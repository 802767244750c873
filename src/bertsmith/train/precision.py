"""Training in bfloat16 with float32 weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.func import functional_call


class Halved(nn.Module):
    """A module computed in bfloat16 whose weights, gradients and updates are float32.

    The weights are cast once a pass, and everything in between stays in bfloat16; autocast, which
    casts at every product, would keep the states between blocks in float32 and read them twice.
    Losses are computed in float32 by the objectives.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: Any) -> Any:
        """What the module inside gives, computed in half precision."""
        halves = {name: value.to(torch.bfloat16) for name, value in self.inner.named_parameters()}
        return functional_call(self.inner, halves, inputs)
