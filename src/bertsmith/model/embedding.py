"""Token ids to the first hidden states: token + segment + learned position."""

from collections.abc import Mapping

from torch import Tensor, nn

from bertsmith.batch import Batch
from bertsmith.kernels import small_table


class SegmentTable(nn.Embedding):
    """A learned vector for each segment (first or second text)."""

    def forward(self, batch: Batch) -> Tensor:  # type: ignore[override]
        """Batch → (T, D)."""
        return small_table(self.weight, batch.segments)


class PositionTable(nn.Embedding):
    """A learned vector for each position; `offset` rows come before position 0."""

    def __init__(self, rows: int, width: int, offset: int = 0) -> None:
        super().__init__(rows, width)
        self.offset = offset

    def forward(self, batch: Batch) -> Tensor:  # type: ignore[override]
        """Batch → (T, D)."""
        return small_table(self.weight, batch.layout.positions + self.offset)


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
        return self.combine(self.token(batch.ids), [mark(batch) for mark in self.marks.values()])

    def combine(self, x: Tensor, marks: list[Tensor]) -> Tensor:
        """Everything after the tables; rows are independent of each other."""
        for mark in marks:
            x = x + mark
        for step in self.finish.values():
            x = step(x)
        return x
