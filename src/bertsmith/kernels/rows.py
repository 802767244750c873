"""Functions of rows in chunks, to save memory for long inputs."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

ROWS = 512  # enough to keep a matrix product fast
FEW = 17  # a CPU's matrix product of fewer rows takes twice the time that it takes for 17


def by_rows(function: Callable[..., Tensor], *inputs: Tensor, into: Tensor | None = None) -> Tensor:
    """Apply a function of rows to tensors (T, ...), on a CPU without gradients in chunks.

    Intermediate tensors then have the size of a chunk, and `into` may hold the result. A few rows
    are padded with copies of the first.
    """
    rows = len(inputs[0])
    if torch.is_grad_enabled() or inputs[0].device.type != "cpu":
        return function(*inputs)
    if 1 < rows < FEW:
        more = FEW - rows
        return function(*(torch.cat([x, x[:1].expand(more, *x.shape[1:])]) for x in inputs))[:rows]
    if rows <= 4 * ROWS:
        return function(*inputs)
    chunks = (function(*chunk) for chunk in zip(*(x.split(ROWS) for x in inputs), strict=True))
    return concatenated(chunks, rows, ROWS, into)


def concatenated(
    chunks: Iterable[Tensor], rows: int, size: int, into: Tensor | None = None
) -> Tensor:
    """Concatenate chunks of `size` rows; without gradients, each is copied and freed at once."""
    if torch.is_grad_enabled():
        return torch.cat(list(chunks))
    for start, chunk in zip(range(0, rows, size), chunks, strict=True):
        if into is None or (into.shape[1:], into.dtype) != (chunk.shape[1:], chunk.dtype):
            into = chunk.new_empty(rows, *chunk.shape[1:])
        into[start : start + size] = chunk
    assert into is not None
    return into
