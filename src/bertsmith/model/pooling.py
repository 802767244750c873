"""Pooling: from token states to the rows that a head reads."""

from torch import Tensor

from bertsmith.batch import Layout


def every(x: Tensor, layout: Layout, rows: Tensor | None = None) -> Tensor:
    """All rows, or only those requested: (T, D) → (rows, D).

    `rows` are indices. If some are repeated, the order in which a GPU sums their gradients varies.
    """
    return x if rows is None else x.index_select(0, rows)


def first(x: Tensor, layout: Layout, rows: Tensor | None = None) -> Tensor:
    """The first state of each sequence ([CLS]): (T, D) → (N, D).

    Captured steps have empty sequences at the end; these get the last state.
    """
    return x.index_select(0, layout.first.clamp(max=x.shape[0] - 1))


def mean(x: Tensor, layout: Layout, rows: Tensor | None = None) -> Tensor:
    """The mean state of each sequence: (T, D) → (N, D), summed in float32."""
    if layout.lengths == (len(x),):
        return x.float().mean(0, keepdim=True).to(x.dtype)
    sums = x.new_zeros(len(layout.lengths), x.shape[1]).float()
    sums = sums.index_add(0, layout.owner, x.float())
    return (sums / layout.boundaries.diff()[:, None]).to(x.dtype)


POOLS = {"every": every, "first": first, "mean": mean}
