"""Position signals, prepared once per batch: rotations, or relative distances."""

import torch
from torch import Tensor, nn

from bertsmith.batch import Layout
from bertsmith.kernels import DistanceRows

Signal = tuple[Tensor, Tensor]


class RotarySignal(nn.Module):
    """Cosines and sines of each token's angle at each frequency."""

    def __init__(self, width: int, base: float) -> None:
        super().__init__()
        self.width, self.base = width, base

    def prepare(self, layout: Layout) -> None:
        """Do nothing: rotations are computed on the device."""

    def forward(self, layout: Layout) -> Signal:
        """Layout → cosines and sines, each (T, 1, d/2)."""
        place = layout.positions[:, None, None].float()
        even = torch.arange(0, self.width, 2, device=place.device, dtype=torch.float32)
        angles = place * (1.0 / self.base ** (even / self.width))
        return angles.cos(), angles.sin()


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate each pair (k, k + d/2) of a head's elements by its angle: (T, H, d) → same.

    The angles are float32, so half precision is rotated in float32.
    """
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cosines - b * sines, b * cosines + a * sines], dim=-1).to(x.dtype)


class RelativeSignal(nn.Module):
    """One table for relative distances, of vectors that all layers project or of biases."""

    def __init__(
        self,
        table: nn.Embedding,
        norm: nn.Module,
        dropout: float,
        buckets: int,
        furthest: int,
        floored: bool = False,
    ) -> None:
        super().__init__()
        self.table, self.norm, self.dropout = table, norm, nn.Dropout(dropout)
        self.distances = DistanceRows(table.num_embeddings // 2, buckets, furthest, floored)

    def prepare(self, layout: Layout) -> None:
        """Copy the rows of distances to the device, which a CUDA graph could not do."""
        self.rows(layout)

    def forward(self, layout: Layout) -> Signal:
        """Layout → vectors (R, D) and the row of each distance (2m-1,)."""
        return self.dropout(self.norm(self.table.weight)), self.rows(layout)

    def rows(self, layout: Layout) -> Tensor:
        """The row of each distance (2m-1,), where m is a power of two that bounds the lengths."""
        return self.distances(layout.longest, self.table.weight.device)
