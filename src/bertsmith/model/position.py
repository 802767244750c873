"""Position signals, prepared once per batch: rotations, or relative distances."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bertsmith.batch import Layout

Signal = tuple[Tensor, Tensor]


class RotarySignal(nn.Module):
    """Cosines and sines of each token's angle at each frequency."""

    def __init__(self, width: int, base: float) -> None:
        super().__init__()
        self.width, self.base = width, base

    def forward(self, layout: Layout) -> Signal:
        """Layout → cosines and sines, each (T, 1, d/2)."""
        place = layout.positions[:, None, None].float()
        even = torch.arange(0, self.width, 2, device=place.device, dtype=torch.float32)
        angles = place * (1.0 / self.base ** (even / self.width))
        return angles.cos(), angles.sin()


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn each pair (k, k + d/2) of a head's coordinates by its angle: (T, H, d) → same.

    The angles are float32, so half precision is turned in float32.
    """
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cosines - b * sines, b * cosines + a * sines], dim=-1).to(x.dtype)


class RelativeSignal(nn.Module):
    """One table of relative-distance vectors that all layers project for themselves."""

    def __init__(
        self, table: nn.Embedding, norm: nn.Module, dropout: float, buckets: int, furthest: int
    ) -> None:
        super().__init__()
        self.table, self.norm, self.dropout = table, norm, nn.Dropout(dropout)
        self.buckets, self.furthest = buckets, furthest

    def forward(self, layout: Layout) -> Signal:
        """Layout → vectors (R, D) and the row of each distance (2m-1,)."""
        span = self.table.num_embeddings // 2
        rows = distance_rows(layout.longest, span, self.buckets, self.furthest)
        vectors = self.dropout(self.norm(self.table.weight))
        return vectors, rows.to(vectors.device, non_blocking=True)


def distance_rows(longest: int, span: int, buckets: int, furthest: int) -> Tensor:
    """The table row of each distance from -(longest-1) to longest-1.

    With buckets, distances up to half of them keep a row each and further ones share rows
    in equal steps of their logarithm, as DeBERTa-v2 does. Computed on the CPU in float32:
    the ceiling of a logarithm must not depend on the device.
    """
    distance = torch.arange(1 - longest, longest)
    if buckets > 0:
        middle = buckets // 2
        size = distance.abs().clamp(min=middle)
        reach = torch.log(torch.tensor((furthest - 1) / middle))
        steps = torch.ceil(torch.log(size / middle) / reach * (middle - 1)) + middle
        far = (steps * distance.sign()).long()
        distance = torch.where(distance.abs() <= middle, distance, far)
    return (distance + span).clamp(0, 2 * span - 1)
