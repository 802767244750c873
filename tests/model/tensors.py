"""Random queries, keys, values and tables of relative positions."""

from __future__ import annotations

import torch
from torch import Tensor

from bertsmith.batch import Layout
from bertsmith.kernels import distance_rows
from bertsmith.model.attend import RelativeBias

HEADS, WIDTH, SPAN = 2, 8, 6


SCALE = 0.3


def qkv(layout: Layout, dtype: torch.dtype = torch.float64, seed: int = 0) -> list[Tensor]:
    """Random queries, keys and values that want gradients, drawn alike for every dtype."""
    random = torch.Generator().manual_seed(seed)
    shape = (layout.total, HEADS, WIDTH)
    drawn = [torch.randn(shape, generator=random, dtype=torch.float64) for _ in range(3)]
    return [x.to(dtype).requires_grad_() for x in drawn]


def relative(
    layout: Layout, terms: str = "both", buckets: int = 0, dtype: torch.dtype = torch.float64
) -> RelativeBias:
    """Random tables of the terms wanted, that want gradients."""
    random = torch.Generator().manual_seed(7)
    shape = (2 * SPAN, HEADS, WIDTH)
    keys, queries = (
        torch.randn(shape, generator=random, dtype=torch.float64).to(dtype).requires_grad_()
        if terms in (term, "both")
        else None
        for term in ("keys", "queries")
    )
    rows = distance_rows(layout.longest, SPAN, buckets, 40)
    levels = torch.randn(2 * SPAN, HEADS, generator=random, dtype=torch.float64).to(dtype)
    return RelativeBias(keys, queries, rows, levels.requires_grad_() if terms == "levels" else None)
