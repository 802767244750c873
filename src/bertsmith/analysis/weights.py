"""Attention weights of one sequence, as many as are wanted and no more: rows, columns, blocks.

The kernel that ran keeps no weights. They are computed again from the queries and keys that
it was given: a row is a softmax; a single cell, or a column, is exp(score - log-sum-exp of its
row), so no more than a few rows of an n × n matrix ever stand in memory.
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

CELLS = 2**21  # scores that stand in memory at once: 8 MiB, and a few copies of it


@dataclass(frozen=True)
class Weights:
    """The attention of H heads in one sequence of n tokens, not yet written out."""

    query: Tensor  # (n, H, d)
    key: Tensor  # (n, H, d)
    scores: Scores

    @classmethod
    def of(cls, query: Tensor, key: Tensor, scores: Scores, heads: Sequence[int]) -> Weights:
        """The attention of chosen heads, in float32 whatever the model computes in."""
        chosen = list(heads)
        if chosen == list(range(query.shape[1])):  # all of them: no copy is needed
            return cls(query.float(), key.float(), scores)
        return cls(query[:, chosen].float(), key[:, chosen].float(), scores.of(chosen))

    def __len__(self) -> int:
        return len(self.key)

    def rows(self, places: Sequence[int] | Tensor) -> Tensor:
        """What these tokens look at: (H, r, n); each row sums to one."""
        return self._scores(torch.as_tensor(places, device=self.key.device)).softmax(-1)

    def columns(self, places: Sequence[int] | Tensor) -> Tensor:
        """Who looks at these tokens, and how much: (H, n, c)."""
        chosen = torch.as_tensor(places, device=self.key.device)
        met = written_out(self.query, self.key[chosen], self.scores, columns=chosen)
        return met.sub_(self.logsumexp[:, :, None]).exp_()

    def cells(self, rows: Sequence[int], columns: Sequence[int]) -> Tensor:
        """What some tokens look at, of some others: (H, r, c), shares of the whole row."""
        asked = torch.as_tensor(rows, device=self.key.device)
        wanted = torch.as_tensor(columns, device=self.key.device)
        parts = [
            self._scores(part).softmax(-1)[:, :, wanted] for part in asked.split(self._at_once)
        ]
        return torch.cat(parts, dim=1)

    @cached_property
    def logsumexp(self) -> Tensor:
        """The logarithm of each row's sum of exponentials (H, n): what fast kernels keep."""
        parts = torch.arange(len(self), device=self.key.device).split(self._at_once)
        return torch.cat([self._scores(part).logsumexp(-1) for part in parts], dim=1)

    def blocks(self, size: int) -> Tensor:
        """Attention between blocks of `size` neighbours: (H, b, b), and rows sum to one.

        A cell is the share that the tokens of one block give to another, on average.
        """
        count = -(-len(self) // size)
        place = torch.arange(len(self), device=self.key.device) // size
        total = self.key.new_zeros(self.key.shape[1], count, count)
        for first, rows in self.stretches():
            across = pad(rows, (0, count * size - len(self))).unflatten(-1, (count, size)).sum(-1)
            total.index_add_(1, place[first : first + rows.shape[1]], across)
        return total / place.bincount()[:, None]

    def stretches(self) -> Iterator[tuple[int, Tensor]]:
        """All rows, a few at a time: the first one's place, and (H, r, n)."""
        for part in torch.arange(len(self), device=self.key.device).split(self._at_once):
            first, last = int(part[0]), int(part[-1])
            if self.scores.window is None:
                yield first, self._scores(part).softmax(-1)
                continue
            # What lies outside the window of every row is zero, and not worth computing.
            left = max(0, first - self.scores.window)
            near = torch.arange(left, min(len(self), last + self.scores.window + 1)).to(part)
            found = written_out(self.query[part], self.key[near], self.scores, part, near)
            yield first, pad(found.softmax(-1), (left, len(self) - left - len(near)))

    @property
    def _at_once(self) -> int:
        return max(1, CELLS // (len(self) * self.key.shape[1]))

    def _scores(self, places: Tensor) -> Tensor:
        return written_out(self.query[places], self.key, self.scores, places)
