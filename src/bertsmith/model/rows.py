"""Pointwise work in chunks of rows, to save memory for long inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

ROWS = 512  # enough to keep a matrix product fast


def by_rows(make: Callable[..., Tensor], *given: Tensor, into: Tensor | None = None) -> Tensor:
    """What `make` gives for tensors of T rows, in parts where a CPU needs no gradient.

    What is made on the way then has the size of a part. In parts, `into` may take the result.
    """
    if torch.is_grad_enabled() or given[0].device.type != "cpu" or len(given[0]) <= 4 * ROWS:
        return make(*given)
    parts = (make(*part) for part in zip(*(x.split(ROWS) for x in given), strict=True))
    return below(parts, len(given[0]), ROWS, into)


def below(parts: Iterable[Tensor], rows: int, each: int, into: Tensor | None = None) -> Tensor:
    """Parts of `each` rows below each other; in place, one is let go unless gradients need it."""
    if torch.is_grad_enabled():
        return torch.cat(list(parts))
    for place, part in zip(range(0, rows, each), parts, strict=True):
        if into is None or (into.shape[1:], into.dtype) != (part.shape[1:], part.dtype):
            into = part.new_empty(rows, *part.shape[1:])
        into[place : place + each] = part
    assert into is not None
    return into
