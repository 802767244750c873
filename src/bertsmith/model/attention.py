"""Multi-head attention: projections, positions, attention, output projection."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.batch import Layout
from bertsmith.kernels.rows import by_rows
from bertsmith.model.attend import RelativeBias, Scores, attend
from bertsmith.model.position import Signal, rotate

Look = Callable[[Tensor, Tensor, Scores], None]  # queries and keys (T, H, d), positions applied
Change = Callable[[Tensor], Tensor]  # (T, H, d) → (T, H, d)
NO_NORM = nn.Identity()


class Context(NamedTuple):
    """What a block gets beside its states."""

    layout: Layout
    signal: Signal | None = None
    look: Look | None = None  # called with the queries, the keys and how they are scored
    change: Change | None = None  # applied to the heads' outputs before the output projection


class QueryValueLinear(nn.Linear):
    """A joint projection to queries, keys and values, in which keys have no bias."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__(width, 3 * inner, bias=False)
        self.query_bias = nn.Parameter(torch.zeros(inner))
        self.value_bias = nn.Parameter(torch.zeros(inner))

    def forward(self, x: Tensor) -> Tensor:
        """(T, D) → (T, 3 * inner)."""
        return F.linear(x, self.weight, self.joint_bias())

    def joint_bias(self) -> Tensor:
        """The bias of queries, keys and values (3 * inner,)."""
        return torch.cat([self.query_bias, torch.zeros_like(self.query_bias), self.value_bias])


class Attention(nn.Module):
    """Attention without positions of its own; they are in the embeddings."""

    def __init__(
        self, qkv: nn.Module, output: nn.Module, heads: int, scores: Scores, dropout: float
    ) -> None:
        super().__init__()
        self.qkv, self.output, self.heads = qkv, output, heads
        self.scores, self.dropout = scores, dropout
        self.kernel: str | None = None  # chosen by device and dtype unless named

    def forward(
        self, x: Tensor, context: Context, queries: Tensor | None = None, norm: nn.Module = NO_NORM
    ) -> Tensor:
        """(T, D) → the outputs of all heads (T, H * d), before the output projection.

        With `queries`, queries are computed from these rows instead of x. `norm` is applied to
        rows before they are projected.
        """
        joint = self.project(x, norm)
        parts = query, key, value = joint.unbind(1)
        if queries is not None:
            query = self.project(queries, norm)[:, 0]
        query, key, bias = self.place(query, key, context.signal)
        scores = self.scores._replace(bias=bias)
        if context.look is not None:
            context.look(query, key, scores)
        dropout = self.dropout if self.training else 0.0
        as_one = joint if query is parts[0] and key is parts[1] else None
        mixed = attend(query, key, value, context.layout, scores, dropout, self.kernel, as_one)
        if context.change is not None:
            mixed = context.change(mixed)
        return mixed.flatten(1)

    def project(self, x: Tensor, norm: nn.Module = NO_NORM) -> Tensor:
        """(rows, D) → queries, keys and values (rows, 3, H, d)."""
        joint = by_rows(lambda rows: self.qkv(norm(rows)), x)
        return joint.unflatten(-1, (3, self.heads, -1))

    def place(self, query: Tensor, key: Tensor, signal: Any) -> tuple[Tensor, Tensor, Any]:
        """Apply positions to queries and keys; return them, and a bias of scores or None."""
        return query, key, None


class RotaryAttention(Attention):
    """Attention that rotates queries and keys by their positions (RoPE)."""

    def place(self, query: Tensor, key: Tensor, signal: Signal) -> tuple[Tensor, Tensor, Any]:
        """Rotate queries and keys."""
        return (
            by_rows(rotate, query, *signal, into=query),
            by_rows(rotate, key, *signal, into=key),
            None,
        )


class BiasedAttention(Attention):
    """Attention that adds a learned bias for each head and relative distance to its scores."""

    def place(self, query: Tensor, key: Tensor, signal: Signal) -> tuple[Tensor, Tensor, Any]:
        """Add the biases that all layers share."""
        levels, rows = signal
        return query, key, RelativeBias(None, None, rows, levels)


class DisentangledAttention(Attention):
    """Attention of content to content, content to distance, and distance to content.

    The distance vectors have projections of their own; None leaves out the term.
    """

    def __init__(self, *parts: Any, position_key: Any, position_query: Any) -> None:
        super().__init__(*parts)
        self.position_key, self.position_query = position_key, position_query

    def place(self, query: Tensor, key: Tensor, signal: Signal) -> tuple[Tensor, Tensor, Any]:
        """Project the distance vectors for this layer."""
        vectors, rows = signal
        keys, queries = (
            None if project is None else project(vectors).unflatten(-1, (self.heads, -1))
            for project in (self.position_key, self.position_query)
        )
        return query, key, RelativeBias(keys, queries, rows)


class SharedDisentangledAttention(Attention):
    """Disentangled attention whose content projections also project distances."""

    def __init__(self, *parts: Any, keys: bool, queries: bool) -> None:
        super().__init__(*parts)
        self.keys, self.queries = keys, queries

    def place(self, query: Tensor, key: Tensor, signal: Signal) -> tuple[Tensor, Tensor, Any]:
        """Project the distance vectors with the layer's own query and key projections."""
        vectors, rows = signal
        queries, keys, _ = self.project(vectors).unbind(1)
        bias = RelativeBias(keys if self.keys else None, queries if self.queries else None, rows)
        return query, key, bias
