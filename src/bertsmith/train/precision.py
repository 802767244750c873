"""Training in bfloat16 with float32 weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

TOGETHER = 16  # weights that are cast together: about a block, so ranks may send while others work


@cache
def has_matrix_units() -> bool:
    """Has this CPU instructions for bf16 matrices?"""
    ask = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return bool(ask()) if ask else False


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
        self.halves: dict[str, Tensor] = {}  # always at one place: graphs on a GPU read them there

    def forward(self, *inputs: Any) -> Any:
        """What the module inside gives, computed in half precision."""
        whole = {id(table.weight) for table in self.tables}
        named = [(n, p) for n, p in self.inner.named_parameters() if id(p) not in whole]
        for name, weight in named:
            if name not in self.halves or self.halves[name].device != weight.device:
                self.halves[name] = torch.empty_like(weight, dtype=torch.bfloat16)
        halves: dict[str, Tensor] = {}
        for first in range(0, len(named), TOGETHER):
            names, weights = zip(*named[first : first + TOGETHER], strict=True)
            cast: Any = Cast.apply([self.halves[name] for name in names], *weights)  # type: ignore[no-untyped-call]
            halves |= dict(zip(names, cast, strict=True))
        hooks = [table.register_forward_hook(_halve) for table in self.tables]
        try:
            return functional_call(self.inner, halves, inputs)
        finally:
            for hook in hooks:
                hook.remove()


class Cast(torch.autograd.Function):
    """Many tensors in half precision, in few kernels; and their gradients back likewise."""

    @staticmethod
    def forward(ctx: Any, halves: list[Tensor], *weights: Tensor) -> tuple[Tensor, ...]:
        """The weights, cast into `halves`."""
        ctx.set_materialize_grads(False)
        ctx.dtypes = [weight.dtype for weight in weights]
        torch._foreach_copy_(halves, list(weights))
        return tuple(half.detach() for half in halves)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Their gradients in the weights' own precision, of those that have one."""
        given = [(g, d) for g, d in zip(grads, ctx.dtypes, strict=True) if g is not None]
        found = [torch.empty_like(grad, dtype=dtype) for grad, dtype in given]
        if found:
            torch._foreach_copy_(found, [grad for grad, _ in given])
        rest = iter(found)
        return None, *(None if grad is None else next(rest) for grad in grads)


def _halve(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return output.to(torch.bfloat16)
