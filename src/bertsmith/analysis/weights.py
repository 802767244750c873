"""Attention weights of one sequence: selected rows, columns and blocks.

The kernel that ran keeps no weights. They are computed again from the queries and keys that
it was given: a row is a softmax; a column is exp(score - log-sum-exp of each row), and that a fast
kernel keeps. So no more than a few rows of an n × n matrix ever stand in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from bertsmith.model import Scores
from bertsmith.model.attend import written_out

CELLS = 2**19  # scores that stand in memory at once: 2 MiB, and a few copies of it
KERNEL = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)


@dataclass(frozen=True)
class AttentionWeights:
    """The attention weights of H heads in a sequence of n tokens, computed when needed."""

    query: Tensor  # (n, H, d)
    key: Tensor  # (n, H, d)
    scores: Scores

    @classmethod
    def of(
        cls, query: Tensor, key: Tensor, scores: Scores, heads: Sequence[int]
    ) -> AttentionWeights:
        """Return the attention of selected heads, in float32 whatever the model's dtype."""
        chosen = list(heads)
        if chosen == list(range(query.shape[1])):  # all of them: no copy is needed
            return cls(query.float(), key.float(), scores)
        return cls(query[:, chosen].float(), key[:, chosen].float(), scores.of(chosen))

    def __len__(self) -> int:
        return len(self.key)

    def rows(self, places: Sequence[int] | Tensor) -> Tensor:
        """Return the attention weights of query tokens: (H, r, n); each row sums to one."""
        return self.cells(places, range(len(self)))

    def columns(self, places: Sequence[int] | Tensor) -> Tensor:
        """Return the attention that key tokens receive: (H, n, c)."""
        chosen = torch.as_tensor(places, device=self.key.device)
        weights = self.key.new_empty(self.key.shape[1], len(self), len(chosen))
        for heads, part in self._parts(len(self)):
            own = self._of(heads)
            rows = torch.arange(part.start, part.stop, device=chosen.device)
            met = written_out(own.query[part], own.key[chosen], own.scores, rows, chosen)
            weights[heads, part] = met.sub_(self.logsumexp[heads, part, None]).exp_()
        return weights

    def cells(self, rows: Sequence[int] | Tensor, columns: Sequence[int]) -> Tensor:
        """Return attention between query and key tokens: (H, r, c), fractions of the full row."""
        asked = torch.as_tensor(rows, device=self.key.device)
        wanted = torch.as_tensor(columns, device=self.key.device)
        fractions = self.key.new_empty(self.key.shape[1], len(asked), len(wanted))
        for heads, part in self._parts(len(asked)):
            own, places = self._of(heads), asked[part]
            weights = written_out(own.query[places], own.key, own.scores, places).softmax(-1)
            fractions[heads, part] = weights[:, :, wanted]
        return fractions

    @cached_property
    def logsumexp(self) -> Tensor:
        """The logarithm of each row's sum of exponentials (H, n)."""
        plain = self.scores.bias is None and self.scores.window is None
        if KERNEL is not None and plain and self.key.device.type == "cpu":
            query, key = (x.transpose(0, 1)[None] for x in (self.query, self.key))
            how = {"is_causal": self.scores.causal, "scale": self.scores.scale}
            kept: Tensor = KERNEL(query, key, key, **how)[1]  # what it mixes does not matter
            return kept[0]
        sums = self.key.new_empty(self.key.shape[1], len(self))
        for heads, part in self._parts(len(self)):
            sums[heads, part] = self._of(heads)._near(part)[0].logsumexp(-1)
        return sums

    def blocks(self, size: int) -> Tensor:
        """Return the mean attention between blocks of `size` tokens: (H, b, b); rows sum to one."""
        count = -(-len(self) // size)
        place = torch.arange(len(self), device=self.key.device) // size
        total = self.key.new_zeros(self.key.shape[1], count, count)
        for heads, part in self._parts(len(self)):
            met, left = self._of(heads)._near(part)
            rows = pad(met.softmax(-1), (left, count * size - left - met.shape[-1]))
            total[heads].index_add_(1, place[part], rows.unflatten(-1, (count, size)).sum(-1))
        return total / place.bincount()[:, None]

    def _near(self, part: slice) -> tuple[Tensor, int]:
        """Scores of rows within their windows (H, r, c), and the place of the first column."""
        reach = len(self) if self.scores.window is None else self.scores.window
        near = slice(max(0, part.start - reach), min(len(self), part.stop + reach))
        place = torch.arange(len(self), device=self.key.device)
        met = written_out(self.query[part], self.key[near], self.scores, place[part], place[near])
        return met, near.start

    def _parts(self, count: int) -> Iterator[tuple[slice, slice]]:
        """Heads and rows in small parts: few heads and many rows make the larger products."""
        heads = self.key.shape[1]
        rows = max(1, min(count, CELLS // len(self)))
        together = max(1, min(heads, CELLS // (rows * len(self))))
        for head in range(0, heads, together):
            for row in range(0, count, rows):
                yield slice(head, head + together), slice(row, min(row + rows, count))

    def _of(self, heads: slice) -> AttentionWeights:
        chosen = range(self.key.shape[1])[heads]
        return AttentionWeights(self.query[:, heads], self.key[:, heads], self.scores.of(chosen))
