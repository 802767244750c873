"""Heads on the encoder: one class for most, and two that read more."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from bertsmith.batch import Batch
from bertsmith.model.embedding import PositionTable
from bertsmith.model.encoder import Hidden


class Head(nn.Module):
    """Pick rows, transform them, map them to outputs.

    With the pool of every row and a tied output this is masked LM; with the first row it is
    the pooler, next-sentence prediction, sequence classification or multiple choice.
    """

    def __init__(
        self, pool: Callable[..., Tensor], transform: Mapping[str, nn.Module], output: nn.Module
    ) -> None:
        super().__init__()
        self.pool, self.transform, self.output = pool, nn.ModuleDict(transform), output

    def forward(self, hidden: Hidden, batch: Batch, rows: Tensor | None = None) -> Tensor:
        """Hidden states → (rows or N, outputs); `rows` picks tokens where every token counts."""
        x = self.pool(self.read(hidden, batch), batch.layout, rows)
        for step in self.transform.values():
            x = step(x)
        return self.output(x)

    def read(self, hidden: Hidden, batch: Batch) -> Tensor:
        """The states this head works on."""
        return hidden.last


class AnchoredHead(Head):
    """A head that adds the first state of a sequence to each (DeBERTa-v3's replaced tokens)."""

    def read(self, hidden: Hidden, batch: Batch) -> Tensor:
        """Each state plus the first state of its sequence."""
        return hidden.last + hidden.last[batch.layout.first[batch.layout.owner]]


class EnhancedMaskHead(Head):
    """DeBERTa's enhanced mask decoder: absolute positions enter just before prediction.

    The last block runs twice more on its own input. Queries are computed from that input plus
    the absolute positions the first time, and from the block's output the second time.
    """

    def __init__(self, *parts: Any, positions: PositionTable, block: nn.Module) -> None:
        super().__init__(*parts)
        self.positions = positions
        self.block = (block,)  # in a tuple: the encoder owns its parameters

    def read(self, hidden: Hidden, batch: Batch) -> Tensor:
        """Two more passes of the last block, with queries that know absolute positions."""
        x = hidden.before + self.positions(batch)
        for _ in range(2):
            x = self.block[0](hidden.before, hidden.context._replace(look=None), x)
        return x
