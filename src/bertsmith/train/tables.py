"""Sparse gradients of embedding tables of which a step reads few rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

LARGE = 4096  # rows; the cost of smaller tables is negligible


def large_tables(model: nn.Module) -> list[nn.Embedding]:
    """Return large trainable embedding tables that are not tied to an output layer."""
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
    """Dense gradients of embedding tables, computed from sparse ones.

    In each backward pass torch allocates a zero table for a few hundred rows, a tenth of the time
    of a step on a CPU. Here only the rows are computed and copied into a table that is reused;
    the gradient is the same.
    """

    def __init__(self, tables: Sequence[nn.Embedding]) -> None:
        self.tables = tables
        self.dense = [torch.zeros_like(table.weight) for table in tables]
        self.sparse: list[tuple[Tensor, Tensor]] = []  # of each table: rows, and their gradients
        for table in tables:
            table.sparse = True

    def gather(self) -> list[Tensor]:
        """Collect the sparse gradients of a step, each row once; returns their values."""
        self.sparse = []
        for table in self.tables:
            assert table.weight.grad is not None
            rows = table.weight.grad.coalesce()
            self.sparse.append((rows.indices()[0], rows.values()))
            table.weight.grad = None
        return [values for _, values in self.sparse]

    def place(self) -> None:
        """Set the tables' gradients from the collected values, which may have been clipped."""
        for table, dense, (rows, values) in zip(self.tables, self.dense, self.sparse, strict=True):
            dense[rows] = values
            table.weight.grad = dense

    def clear(self) -> None:
        """Zero the collected rows."""
        for dense, (rows, _) in zip(self.dense, self.sparse, strict=True):
            dense[rows] = 0.0

    def close(self) -> None:
        """Restore dense gradients in torch."""
        for table in self.tables:
            table.sparse = False
