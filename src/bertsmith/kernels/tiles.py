"""The Triton programs behind short attention."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BASE = tl.constexpr(1.4426950408889634)  # log2(e): exponents are of two, which GPUs compute


@triton.jit
def _tile(table, rows, real, inner, stride):
    """The rows of one sequence and head; zeros behind its end."""
    return tl.load(table + rows[:, None] * stride + inner[None, :], mask=real[:, None], other=0.0)


@triton.jit
def _masked(scores, ahead, real, window: tl.constexpr, causal: tl.constexpr):
    """Scores, but nothing where a query, `ahead` of a key by so many places, does not see it."""
    seen = real
    if window >= 0:
        seen = seen & (ahead <= window) & (ahead >= -window)
    if causal:
        seen = seen & (ahead >= 0)
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def _kept(seed, query, key, side: tl.constexpr, dropout):
    """Which weights of this sequence and head are not dropped: a hash of where they are.

    Murmur's last steps, in which every bit depends on all: a tenth of the work of a random
    generator, which would take longer than attention itself.
    """
    tile = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    bits = ((tile * side + query) * side + key).to(tl.uint32)
    bits = bits * 0x9E3779B1 ^ tl.load(seed).to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x85EBCA6B
    bits = (bits ^ (bits >> 13)) * 0xC2B2AE35
    bits = bits ^ (bits >> 16)
    return (bits >> 8).to(tl.float32) >= dropout * 16777216.0


@triton.jit
def forward_tile(
    query, key, value, out, sums, seed, boundaries, per_query, per_key, per_value, scale, dropout,
    side: tl.constexpr, wide: tl.constexpr, window: tl.constexpr, causal: tl.constexpr,
    drops: tl.constexpr,
):  # fmt: skip
    """What one head finds in one sequence. Scores lie as (queries, keys)."""
    head, heads = tl.program_id(1), tl.num_programs(1)
    begin = tl.load(boundaries + tl.program_id(0)).to(tl.int64)
    length = tl.load(boundaries + tl.program_id(0) + 1) - begin
    if length <= 0:
        return
    place, inner = tl.arange(0, side), head * wide + tl.arange(0, wide)
    real, rows = place < length, begin + place
    q = _tile(query, rows, real, inner, per_query)
    k = _tile(key, rows, real, inner, per_key)
    v = _tile(value, rows, real, inner, per_value)
    ahead = place[:, None] - place[None, :]
    scores = tl.dot(q, tl.trans(k)) * (scale * BASE)
    scores = _masked(scores, ahead, real[None, :], window, causal)
    # Behind a sequence's end there may be queries that see nothing: no infinities for them.
    most = tl.maximum(tl.max(scores, 1), -1e30)
    weights = tl.exp2(scores - most[:, None])
    total = tl.maximum(tl.sum(weights, 1), 1e-30)
    tl.store(sums + rows * heads + head, most + tl.log2(total), mask=real)
    if drops:
        kept = _kept(seed, place[:, None], place[None, :], side, dropout)
        weights = tl.where(kept, weights / (1 - dropout), 0.0)
    found = tl.dot(weights.to(v.dtype), v) / total[:, None]
    where = out + rows[:, None] * (heads * wide) + inner[None, :]
    tl.store(where, found.to(v.dtype), mask=real[:, None])


@triton.jit
def backward_tile(
    query, key, value, grad, out, sums, seed, boundaries, per_query, per_key, per_value, per_grad,
    scale, dropout,
    side: tl.constexpr, wide: tl.constexpr, window: tl.constexpr, causal: tl.constexpr,
    drops: tl.constexpr,
):  # fmt: skip
    """The gradients of one head in one sequence. Scores lie as (keys, queries).

    So two of the three products read them as they lie.
    """
    head, heads = tl.program_id(1), tl.num_programs(1)
    begin = tl.load(boundaries + tl.program_id(0)).to(tl.int64)
    length = tl.load(boundaries + tl.program_id(0) + 1) - begin
    if length <= 0:
        return
    place, inner = tl.arange(0, side), head * wide + tl.arange(0, wide)
    real, rows = place < length, begin + place
    q = _tile(query, rows, real, inner, per_query)
    k = _tile(key, rows, real, inner, per_key)
    v = _tile(value, rows, real, inner, per_value)
    g = _tile(grad, rows, real, inner, per_grad)
    total = tl.load(sums + rows * heads + head, mask=real, other=float("inf"))
    ahead = place[None, :] - place[:, None]
    scores = tl.dot(k, tl.trans(q)) * (scale * BASE)
    weights = tl.exp2(_masked(scores, ahead, real[:, None], window, causal) - total[None, :])
    back = tl.dot(v, tl.trans(g))
    used = weights
    if drops:
        kept = _kept(seed, place[None, :], place[:, None], side, dropout)
        used = tl.where(kept, weights / (1 - dropout), 0.0)
        back = tl.where(kept, back / (1 - dropout), 0.0)
    steps = weights * (back - tl.sum(weights * back, 0)[None, :]) * scale
    steps = steps.to(q.dtype)
    width = heads * wide
    where = out + rows[:, None] * (3 * width) + inner[None, :]
    tl.store(where + 2 * width, tl.dot(used.to(q.dtype), g).to(q.dtype), mask=real[:, None])
    tl.store(where + width, tl.dot(steps, q).to(q.dtype), mask=real[:, None])
    tl.store(where, tl.dot(tl.trans(steps), k).to(q.dtype), mask=real[:, None])


def launch(
    tile: triton.JITFunction,
    rows: list[Tensor],
    written: list[Tensor],
    boundaries: Tensor,
    longest: int,
    *how: float,
) -> None:
    """Run a program for every sequence and head. `rows` are read by rows, which may lie apart."""
    scale, window, causal, dropout = how
    _, heads, width = rows[0].shape
    side = max(16, triton.next_power_of_2(longest))
    tile[(len(boundaries) - 1, heads)](
        *rows,
        *written,
        boundaries,
        *(x.stride(0) for x in rows),
        scale,
        dropout,
        side=side,
        wide=width,
        window=window,
        causal=causal,
        drops=dropout > 0,
        num_warps=8 if side == 128 else 4,
    )
