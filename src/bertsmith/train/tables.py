"""Sparse gradients of embedding tables of which a step reads few rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

LARGE = 4096  # rows; below, a whole table costs nothing


def large_tables(model: nn.Module) -> list[nn.Embedding]:
    """The large tables that learn and are read by rows only: no output layer shares them."""
    owners: dict[nn.Parameter, list[nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(parameter, []).append(module)
    return [
        table
        for parameter, (table, *others) in owners.items()
        if type(table) is nn.Embedding
        and not others
        and table.num_embeddings > LARGE
        and parameter.requires_grad
    ]


class TableGradients:
    """The gradients of some tables, for an optimizer that wants them whole.

    In each backward pass torch makes a table of zeros for a few hundred rows, which takes a tenth
    of a step on a CPU. Here the rows come alone, into one table that stays; so the gradient is the
    same as ever.
    """

    def __init__(self, tables: Sequence[nn.Embedding]) -> None:
        self.tables = tables
        self.kept = [torch.zeros_like(table.weight) for table in tables]
        self.found: list[tuple[Tensor, Tensor]] = []  # of each table: rows, and their gradients
        for table in tables:
            table.sparse = True

    def gather(self) -> list[Tensor]:
        """Take what came to the tables in a step: every row that was read, once."""
        self.found = []
        for table in self.tables:
            assert table.weight.grad is not None
            rows = table.weight.grad.coalesce()
            self.found.append((rows.indices()[0], rows.values()))
            table.weight.grad = None
        return [values for _, values in self.found]

    def place(self) -> None:
        """Give the tables what was gathered, and perhaps changed since."""
        for table, whole, (rows, values) in zip(self.tables, self.kept, self.found, strict=True):
            whole[rows] = values
            table.weight.grad = whole

    def clear(self) -> None:
        """Forget it."""
        for whole, (rows, _) in zip(self.kept, self.found, strict=True):
            whole[rows] = 0.0

    def close(self) -> None:
        """Leave the tables as they were."""
        for table in self.tables:
            table.sparse = False
