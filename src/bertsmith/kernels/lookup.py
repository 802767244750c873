"""Rows of small tables: positions and segments.

torch sorts all ids to compute the gradient of a table, whatever its size. For a few hundred rows,
a matrix multiplication with ones and zeros is faster, and its result does not vary either.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

SMALL = 1024  # rows


def small_table(table: Tensor, ids: Tensor) -> Tensor:
    """The rows of a table (R, D) for ids (T,): (T, D)."""
    fits = table.device.type == "cuda" and len(table) <= SMALL and table.dtype.itemsize == 2
    if not (fits and torch.is_grad_enabled()):
        return F.embedding(ids, table)
    return Lookup.apply(table, ids)  # type: ignore[no-untyped-call]


class Lookup(torch.autograd.Function):
    """F.embedding with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor) -> Tensor:
        """The rows for ids."""
        ctx.save_for_backward(ids)
        ctx.rows = len(table)
        return F.embedding(ids, table)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """The sums of the gradients of each row."""
        (ids,) = ctx.saved_tensors
        chosen = torch.arange(ctx.rows, device=ids.device)[:, None] == ids
        return chosen.to(grad.dtype) @ grad, None
