"""The Triton programs behind short attention."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

BUSY = 512  # number of programs that keep a GPU busy
BASE = tl.constexpr(1.4426950408889634)  # log2(e): GPUs compute powers of two


@triton.jit
def _tile(table, rows, real, inner, stride):
    """The rows of one sequence and head; zeros beyond its end."""
    return tl.load(table + rows[:, None] * stride + inner[None, :], mask=real[:, None], other=0.0)


@triton.jit
def _masked(scores, ahead, real, window: tl.constexpr, causal: tl.constexpr):
    """Mask the scores of keys that are not visible to a query `ahead` positions after them."""
    seen = real
    if window >= 0:
        seen = seen & (ahead <= window) & (ahead >= -window)
    if causal:
        seen = seen & (ahead >= 0)
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def _kept(tile, seed, query, key, side: tl.constexpr, dropout):
    """Which weights of this sequence and head are not dropped: a hash of where they are.

    Murmur's finaliser, in which every bit depends on all: a tenth of the work of a
    random number generator, which would take longer than attention itself.
    """
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
    """The output of one head for one sequence. Scores are (queries, keys)."""
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
    # Queries beyond a sequence's end may have no visible keys: avoid infinities.
    most = tl.maximum(tl.max(scores, 1), -1e30)
    weights = tl.exp2(scores - most[:, None])
    total = tl.maximum(tl.sum(weights, 1), 1e-30)
    tl.store(sums + rows * heads + head, most + tl.log2(total), mask=real)
    if drops:
        tile = tl.program_id(0) * heads + head
        kept = _kept(tile, seed, place[:, None], place[None, :], side, dropout)
        weights = tl.where(kept, weights / (1 - dropout), 0.0)
    found = tl.dot(weights.to(v.dtype), v) / total[:, None]
    where = out + rows[:, None] * (heads * wide) + inner[None, :]
    tl.store(where, found.to(v.dtype), mask=real[:, None])


@triton.jit
def backward_tile(
    query, key, value, grad, out, sums, seed, boundaries, per_query, per_key, per_value, per_grad,
    scale, dropout, heads,
    side: tl.constexpr, wide: tl.constexpr, window: tl.constexpr, causal: tl.constexpr,
    drops: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    """The gradients of some heads in one sequence; the next head is prefetched.

    Scores are (queries, keys), so that sums over keys stay inside a warp.
    """
    begin = tl.load(boundaries + tl.program_id(0)).to(tl.int64)
    length = tl.load(boundaries + tl.program_id(0) + 1) - begin
    if length <= 0:
        return
    place, width = tl.arange(0, side), heads * wide
    real, rows = place < length, begin + place
    ahead = place[:, None] - place[None, :]
    for head in tl.range(tl.program_id(1), heads, tl.num_programs(1), num_stages=stages):
        inner = head * wide + tl.arange(0, wide)
        q = _tile(query, rows, real, inner, per_query)
        k = _tile(key, rows, real, inner, per_key)
        v = _tile(value, rows, real, inner, per_value)
        g = _tile(grad, rows, real, inner, per_grad)
        total = tl.load(sums + rows * heads + head, mask=real, other=float("inf"))
        scores = tl.dot(q, tl.trans(k)) * (scale * BASE)
        scores = _masked(scores, ahead, real[None, :], window, causal)
        weights = tl.exp2(scores - total[:, None])
        back = tl.dot(g, tl.trans(v))
        used = weights
        if drops:
            tile = tl.program_id(0) * heads + head
            kept = _kept(tile, seed, place[:, None], place[None, :], side, dropout)
            used = tl.where(kept, weights / (1 - dropout), 0.0)
            back = tl.where(kept, back / (1 - dropout), 0.0)
        level = tl.sum(weights * back, 1)
        where = out + rows[:, None] * (3 * width) + inner[None, :]
        found = tl.dot(tl.trans(used.to(q.dtype)), g)
        tl.store(where + 2 * width, found.to(q.dtype), mask=real[:, None])
        # Registers are scarce here: keep only one of the weights and their rounded copy.
        again = weights if drops else used.to(q.dtype).to(tl.float32)
        steps = (again * (back - level[:, None]) * scale).to(q.dtype)
        found = tl.dot(tl.trans(steps), q)
        tl.store(where + width, found.to(q.dtype), mask=real[:, None])
        tl.store(where, tl.dot(steps, k).to(q.dtype), mask=real[:, None])


def launch(
    tile: triton.JITFunction,
    rows: list[Tensor],
    written: list[Tensor],
    boundaries: Tensor,
    longest: int,
    *how: float,
) -> None:
    """Run a program for every sequence and head. `rows` may be strided."""
    scale, window, causal, dropout = how
    _, heads, width = rows[0].shape
    side = max(16, triton.next_power_of_2(longest))
    count = len(boundaries) - 1
    across, more = heads, {}
    if tile is backward_tile:
        # It loops over heads if there are enough sequences to keep a GPU busy, and prefetches the
        # next head if two heads fit into the GPU's shared memory.
        across = min(heads, triton.cdiv(BUSY, count))
        stages = 2 if _has_room(rows[0].device, side * width) else 1
        more = {"heads": heads, "stages": stages}
    tile[(count, across)](
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
        **more,
        num_warps=8 if side == 128 else 4,
    )


@cache
def _has_room(device: torch.device, elements: int) -> bool:
    """Return whether two tiles of this many elements fit into shared memory."""
    if device.type != "cuda":
        return False
    properties = torch.cuda.get_device_properties(device)
    shared = getattr(properties, "shared_memory_per_block_optin", 0)
    return int(shared) >= 26 * elements  # the maximum that the compiler requested
