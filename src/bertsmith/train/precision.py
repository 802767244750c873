"""Training in bfloat16 with float32 weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


class Halved(nn.Module):
    """A module computed in bfloat16 whose weights, gradients and updates are float32.

    The weights are cast once a pass, and everything in between stays in bfloat16; autocast, which
    casts at every product, would keep the states between blocks in float32 and read them twice.
    Losses are computed in float32 by the objectives. Of `tables` only what is read is cast, which
    is the same and costs less where a pass reads few of their rows.
    """

    def __init__(self, inner: nn.Module, tables: Sequence[nn.Embedding] = ()) -> None:
        super().__init__()
        self.inner, self.tables = inner, tuple(tables)

    def forward(self, *inputs: Any) -> Any:
        """What the module inside gives, computed in half precision."""
        whole = {id(table.weight) for table in self.tables}
        halves = {
            name: value.to(torch.bfloat16)
            for name, value in self.inner.named_parameters()
            if id(value) not in whole
        }
        hooks = [table.register_forward_hook(_halve) for table in self.tables]
        try:
            return functional_call(self.inner, halves, inputs)
        finally:
            for hook in hooks:
                hook.remove()


def _halve(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return output.to(torch.bfloat16)
