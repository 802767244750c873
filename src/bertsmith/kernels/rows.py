"""Pointwise work in chunks of rows, to save memory for long inputs."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

ROWS = 512  # enough to keep a matrix product fast
FEW = 17  # rows below which a CPU's matrix product takes twice the time that it takes for so many


def by_rows(make: Callable[..., Tensor], *given: Tensor, into: Tensor | None = None) -> Tensor:
    """What `make` gives for tensors of T rows, in parts where a CPU needs no gradient.

    What is made on the way then has the size of a part. In parts, `into` may take the result. A few
    rows are filled up with copies of the first.
    """
    rows = len(given[0])
    if torch.is_grad_enabled() or given[0].device.type != "cpu":
        return make(*given)
    if 1 < rows < FEW:
        more = FEW - rows
        return make(*(torch.cat([x, x[:1].expand(more, *x.shape[1:])]) for x in given))[:rows]
    if rows <= 4 * ROWS:
        return make(*given)
    parts = (make(*part) for part in zip(*(x.split(ROWS) for x in given), strict=True))
    return below(parts, rows, ROWS, into)


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
