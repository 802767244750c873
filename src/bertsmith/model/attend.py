"""`attend`, and the attention kernels behind it; tests verify that all agree.

reference  a sequence at a time, written out: what the others must equal
runs       scaled_dot_product_attention on neighbours of equal length: no padding anywhere
grouped    the same on sequences of like length, a little padded: few calls, for GPUs
varlen     torch's flash kernel for ragged rows (CUDA, half precision)
full       cuDNN's kernel for batches whose sequences all have the same length (CUDA, half)
short      our own for batches known to have at most 128 tokens a sequence (CUDA, half, Triton)
relative   our own for relative positions (CUDA, half, Triton)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.batch import Layout
from bertsmith.errors import BertsmithError
from bertsmith.kernels import (
    fits_full,
    fits_ragged,
    fits_relative,
    fits_short,
    full_attention,
    ragged_attention,
    relative_attention,
    short_attention,
)
from bertsmith.kernels.rows import concatenated

CHUNK = 256  # queries that share one key range in local attention over a long sequence


class RelativeBias(NamedTuple):
    """The position terms of attention scores, as tables with a row for each distance (bucket)."""

    keys: Tensor | None  # (R, H, d) distance vectors that queries are multiplied by
    queries: Tensor | None  # (R, H, d) distance vectors that keys are multiplied by
    rows: Tensor  # (2m-1,) the table row for distances i - j from -(m-1) to m-1
    levels: Tensor | None = None  # (R, H) added to the scores at each distance

    def at(self, length: int) -> Tensor:
        """Table rows for the distances inside a sequence of this length (2n-1,)."""
        middle = len(self.rows) // 2
        return self.rows[middle - length + 1 : middle + length]

    def of(self, heads: Sequence[int]) -> RelativeBias:
        """The terms of some heads only."""
        tables = (self.keys, self.queries, self.levels)
        keys, queries, levels = (None if table is None else table[:, heads] for table in tables)
        return RelativeBias(keys, queries, self.rows, levels)

    def added(self, length: int) -> Tensor:
        """The bias of scores in a sequence of this length: (H, n, n), or (n, n) zeros."""
        if self.levels is None:
            return torch.zeros(length, length, device=self.rows.device)
        # Window w of the distances in descending order holds the keys of query n - 1 - w.
        by_distance = self.levels[self.at(length).flip(0)].T.contiguous()  # (H, 2n-1)
        return by_distance.unfold(1, length, 1).flip(1)


class Scores(NamedTuple):
    """How the attention score of a query and a key is computed."""

    scale: float
    window: int | None = None  # visible tokens on either side; None: the whole sequence
    bias: RelativeBias | None = None
    causal: bool = False  # tokens to the right are hidden

    def of(self, heads: Sequence[int]) -> Scores:
        """The scores of some heads only."""
        return self if self.bias is None else self._replace(bias=self.bias.of(heads))


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layout: Layout,
    scores: Scores,
    dropout: float = 0.0,
    kernel: str | None = None,
    joint: Tensor | None = None,
) -> Tensor:
    """Softmax attention within each sequence: three (T, H, d) → (T, H, d).

    The kernel is selected by device, dtype and length unless it is named. `joint` (T, 3, H, d) is
    the tensor of which the three are views, if they are: it gets one gradient instead of three that
    are copied.
    """
    chosen = kernel or choose(query, scores, layout.most, layout.full)
    if joint is not None and chosen in ("short", "relative"):
        return KERNELS[chosen](joint, layout, scores, dropout)
    return KERNELS[chosen](query, key, value, layout, scores, dropout)


def choose(query: Tensor, scores: Scores, most: int, full: bool = False) -> str:
    """The fastest kernel that can do this exactly.

    `most` is the layout's bound on lengths; `full`: all sequences have that length.
    """
    if query.device.type == "cpu":
        return "runs"
    if scores.bias is not None:
        return "relative" if scores.bias.levels is None and fits_relative(query) else "grouped"
    if full and fits_full(query, most, scores.window):
        return "full"
    longer = "varlen" if fits_ragged(query) else "grouped"
    return "short" if fits_short(query, most) else longer


def maps(
    query: Tensor, key: Tensor, layout: Layout, scores: Scores, heads: Sequence[int] | None = None
) -> list[Tensor]:
    """The attention weights of chosen heads: one (H, n, n) for each sequence."""
    chosen = list(range(query.shape[1])) if heads is None else list(heads)
    if not all(0 <= head < query.shape[1] for head in chosen):
        raise BertsmithError(f"heads are numbered from 0 to {query.shape[1] - 1}, not {chosen}")
    scores = scores.of(chosen)
    pairs = zip(layout.split(query[:, chosen]), layout.split(key[:, chosen]), strict=True)
    return [written_out(q.float(), k.float(), scores).softmax(-1) for q, k in pairs]


def written_out(
    q: Tensor,
    k: Tensor,
    scores: Scores,
    rows: Tensor | None = None,
    columns: Tensor | None = None,
) -> Tensor:
    """Scores of one sequence, term by term: (r, H, d) and (c, H, d) → (H, r, c).

    `rows` are the positions of the queries in q, `columns` those of the keys in k (default: all).
    Both tensors may have further dimensions in front, for sequences of equal length.
    """
    q, k, bias = q.transpose(-3, -2) * scores.scale, k.transpose(-3, -2), scores.bias
    rows = torch.arange(q.shape[-2], device=q.device) if rows is None else rows
    columns = torch.arange(k.shape[-2], device=q.device) if columns is None else columns
    distance = rows[:, None] - columns[None, :]
    total = q @ k.mT
    if bias is not None:
        row = bias.rows[bias.rows.shape[0] // 2 + distance]  # (r, c)
        index = row.expand_as(total)
        if bias.keys is not None:
            total = total + (q @ bias.keys.to(q.dtype).permute(1, 2, 0)).gather(-1, index)
        if bias.queries is not None:
            by_key = (k * scores.scale) @ bias.queries.to(q.dtype).permute(1, 2, 0)
            total = total + by_key.gather(-1, index.mT).mT
        if bias.levels is not None:
            total = total + bias.levels.to(q.dtype)[row].permute(2, 0, 1)
    if scores.window is not None:
        total = total.masked_fill(distance.abs() > scores.window, float("-inf"))
    if scores.causal:
        total = total.masked_fill(distance < 0, float("-inf"))
    return total


def _reference(
    query: Tensor, key: Tensor, value: Tensor, layout: Layout, scores: Scores, dropout: float
) -> Tensor:
    done = []
    for q, k, v in zip(*(layout.split(x) for x in (query, key, value)), strict=True):
        weights = F.dropout(written_out(q, k, scores).softmax(-1), dropout)
        done.append((weights @ v.transpose(0, 1)).transpose(0, 1))
    return torch.cat(done)


def _runs(
    query: Tensor, key: Tensor, value: Tensor, layout: Layout, scores: Scores, dropout: float
) -> Tensor:
    if (scores.bias is not None) + (scores.window is not None) + scores.causal > 1:
        return _reference(query, key, value, layout, scores, dropout)  # no family has two
    sdpa = partial(F.scaled_dot_product_attention, dropout_p=dropout, scale=scores.scale)
    done = []
    for row, count, length in layout.runs:
        rows = slice(row, row + count * length)
        q, k, v = (  # (count, H, n, d)
            x[rows].unflatten(0, (count, length)).transpose(1, 2) for x in (query, key, value)
        )
        if scores.bias is not None:
            out = sdpa(q, k, v, attn_mask=_skewed(q * scores.scale, k * scores.scale, scores.bias))
        elif scores.window is not None and length > scores.window + 1:
            out = _local(sdpa, q, k, v, scores.window)
        else:
            out = sdpa(q, k, v, is_causal=scores.causal)
        done.append(out.transpose(1, 2).flatten(0, 1))
    return done[0] if len(done) == 1 else torch.cat(done)


def _grouped(
    query: Tensor, key: Tensor, value: Tensor, layout: Layout, scores: Scores, dropout: float
) -> Tensor:
    rows, groups = (query, key, value), layout.groups
    parts = (x.index_select(0, groups.picked).split(groups.sizes) for x in rows)
    done = []
    for seen, *grids in zip(groups.seen, *parts, strict=True):
        q, k, v = (x.unflatten(0, seen.shape).transpose(1, 2) for x in grids)  # (c, H, n, d)
        mask = seen[:, None, None, :]
        if scores.window is not None or scores.causal:
            place = torch.arange(seen.shape[1], device=q.device)
            distance = place[:, None] - place[None, :]
            most = len(place) if scores.window is None else scores.window
            near = (distance <= most) & (distance >= (0 if scores.causal else -most))
            # Padding queries see all keys: the softmax of a fully masked row is NaN.
            mask = mask & (near | ~seen[:, None, :, None])
        if scores.bias is not None:
            bias = _skewed(q * scores.scale, k * scores.scale, scores.bias)
            mask = bias.masked_fill(~mask, float("-inf"))
        mixed = F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=scores.scale)
        done.append(mixed.transpose(1, 2).flatten(0, 1))
    return torch.cat(done).index_select(0, groups.places)


def _local(sdpa: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Attention to `window` neighbours, a chunk of queries at a time: O(n * window)."""
    place, length = torch.arange(q.shape[2], device=q.device), q.shape[2]

    def chunk(start: int) -> Tensor:
        mine = slice(start, min(start + CHUNK, length))
        near = slice(max(0, start - window), min(mine.stop + window, length))
        seen = (place[mine, None] - place[None, near]).abs() <= window
        mixed = sdpa(q[:, :, mine], k[:, :, near], v[:, :, near], attn_mask=seen)
        return mixed.permute(2, 0, 1, 3)  # rows first, as they lie when heads are put together

    return concatenated(map(chunk, range(0, length, CHUNK)), length, CHUNK).permute(1, 2, 0, 3)


def _skewed(q: Tensor, k: Tensor, bias: RelativeBias) -> Tensor:
    """Relative scores of equal sequences: two (c, H, n, d) → (c or 1, H, n, n).

    Position vectors are laid out by distance, so the score of (i, j) stands in row i, column
    j - i + n - 1 of one product: a diagonal walk that `as_strided` views without a gather.
    """
    count, heads, length, _ = q.shape
    rows, across = bias.at(length), 2 * length - 1
    total = bias.added(length).to(q.dtype).expand(1, heads, length, length)
    for content, table, order, steps in (
        (q, bias.keys, rows.flip(0), (across - 1, 1)),
        (k, bias.queries, rows, (1, across - 1)),
    ):
        if table is not None:
            vectors = table[order].permute(1, 2, 0)  # (H, d, 2n-1)
            product = (content.transpose(0, 1).flatten(1, 2) @ vectors).contiguous()
            strides = (length * across, count * length * across, *steps)
            size = (count, heads, length, length)
            total = total + product.as_strided(size, strides, length - 1)
    return total


def _bounded(compute: Callable[..., Tensor], *inputs: Any) -> Tensor:
    """Attention with a kernel that reads the boundaries of sequences on the device."""
    *rows, layout, scores, dropout = inputs
    bias: RelativeBias | None = scores.bias
    if (bias is None) is (compute is relative_attention):
        raise ValueError("only the kernel 'relative' computes a relative bias, and it needs one")
    if bias is not None and bias.levels is not None:
        raise ValueError("the kernel 'relative' cannot add a bias that depends on distance alone")
    how = (scores.scale, scores.window, scores.causal, dropout)
    tables = () if bias is None else (bias.keys, bias.queries, bias.rows)
    return compute(rows, layout.ends, layout.longest, *how, *tables)


KERNELS: dict[str, Callable[..., Tensor]] = {
    "reference": _reference,
    "runs": _runs,
    "grouped": _grouped,
    "varlen": partial(_bounded, ragged_attention),
    "full": partial(_bounded, full_attention),
    "short": partial(_bounded, short_attention),
    "relative": partial(_bounded, relative_attention),
}
