"""Token ids to the first hidden states: token + segment + learned position."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from bertsmith.batch import Batch


class SegmentTable(nn.Embedding):
    """A vector for each segment: which of two texts a token belongs to."""

    def forward(self, batch: Batch) -> Tensor:  # type: ignore[override]
        """Batch → (T, D)."""
        return super().forward(batch.segments)


class PositionTable(nn.Embedding):
    """A learned vector for each place in a sequence; `offset` rows come before place 0."""

    def __init__(self, rows: int, width: int, offset: int = 0) -> None:
        super().__init__(rows, width)
        self.offset = offset

    def forward(self, batch: Batch) -> Tensor:  # type: ignore[override]
        """Batch → (T, D)."""
        return super().forward(batch.layout.positions + self.offset)


class Embedding(nn.Module):
    """The sum of a token's vectors, then norm, dropout and projection in the family's order."""

    def __init__(
        self, token: nn.Embedding, marks: Mapping[str, nn.Module], finish: Mapping[str, nn.Module]
    ) -> None:
        super().__init__()
        self.token = token
        self.marks = nn.ModuleDict(marks)
        self.finish = nn.ModuleDict(finish)

    def forward(self, batch: Batch) -> Tensor:
        """Batch → (T, D)."""
        x = self.token(batch.ids)
        for mark in self.marks.values():
            x += mark(batch)  # nobody else holds it, and a long input is large
        for step in self.finish.values():
            x = step(x)
        return x
