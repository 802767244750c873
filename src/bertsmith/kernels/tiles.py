"""The Triton programs behind short attention.

`side` is the longest length as a power of two, `dim` the width of a head, and `valid` masks rows
beyond the end of a sequence. Scores are in units of log 2, so that softmax is computed with exp2.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

BUSY = 512  # number of programs that keep a GPU busy
LOG2_E = tl.constexpr(1.4426950408889634)  # of e: GPUs compute powers of two


@triton.jit
def _load(table, rows, valid, column, stride):
    """Load the rows of one sequence and head; zeros beyond the end of the sequence."""
    return tl.load(table + rows[:, None] * stride + column[None, :], mask=valid[:, None], other=0.0)


@triton.jit
def _mask_scores(scores, distance, valid, window: tl.constexpr, causal: tl.constexpr):
    """Set scores of keys that a query does not attend to to -inf; `distance`: query minus key."""
    visible = valid
    if window >= 0:
        visible = visible & (distance <= window) & (distance >= -window)
    if causal:
        visible = visible & (distance >= 0)
    return tl.where(visible, scores, float("-inf"))


@triton.jit
def _keeps(tile, seed, query, key, side: tl.constexpr, dropout):
    """The dropout mask of one sequence and head, from a hash of each weight's position.

    The hash is the finaliser of MurmurHash3. It takes a tenth of the time of a random number
    generator, which would take longer than attention itself.
    """
    bits = ((tile * side + query) * side + key).to(tl.uint32)
    bits = bits * 0x9E3779B1 ^ tl.load(seed).to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x85EBCA6B
    bits = (bits ^ (bits >> 13)) * 0xC2B2AE35
    bits = bits ^ (bits >> 16)
    return (bits >> 8).to(tl.float32) >= dropout * 16777216.0


@triton.jit
def forward_tile(
    query, key, value, out, log_sums, seed, boundaries, per_query, per_key, per_value, scale,
    dropout, side: tl.constexpr, dim: tl.constexpr, window: tl.constexpr, causal: tl.constexpr,
    drops: tl.constexpr,
):  # fmt: skip
    """The output of one head for one sequence. Scores are (queries, keys)."""
    head, heads = tl.program_id(1), tl.num_programs(1)
    begin = tl.load(boundaries + tl.program_id(0)).to(tl.int64)
    length = tl.load(boundaries + tl.program_id(0) + 1) - begin
    if length <= 0:
        return
    position, column = tl.arange(0, side), head * dim + tl.arange(0, dim)
    valid, rows = position < length, begin + position
    q = _load(query, rows, valid, column, per_query)
    k = _load(key, rows, valid, column, per_key)
    v = _load(value, rows, valid, column, per_value)
    distance = position[:, None] - position[None, :]
    scores = tl.dot(q, tl.trans(k)) * (scale * LOG2_E)
    scores = _mask_scores(scores, distance, valid[None, :], window, causal)
    # Queries beyond a sequence's end may have no visible keys: avoid infinities.
    row_max = tl.maximum(tl.max(scores, 1), -1e30)
    weights = tl.exp2(scores - row_max[:, None])
    total = tl.maximum(tl.sum(weights, 1), 1e-30)
    tl.store(log_sums + rows * heads + head, row_max + tl.log2(total), mask=valid)
    if drops:
        tile = tl.program_id(0) * heads + head
        keep = _keeps(tile, seed, position[:, None], position[None, :], side, dropout)
        weights = tl.where(keep, weights / (1 - dropout), 0.0)
    result = tl.dot(weights.to(v.dtype), v) / total[:, None]
    ptr = out + rows[:, None] * (heads * dim) + column[None, :]
    tl.store(ptr, result.to(v.dtype), mask=valid[:, None])


@triton.jit
def backward_tile(
    query, key, value, grad, out, log_sums, seed, boundaries, per_query, per_key, per_value,
    per_grad, scale, dropout, heads,
    side: tl.constexpr, dim: tl.constexpr, window: tl.constexpr, causal: tl.constexpr,
    drops: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    """The gradients of some heads in one sequence; the next head is prefetched.

    Scores are (queries, keys), so that sums over keys stay inside a warp.
    """
    begin = tl.load(boundaries + tl.program_id(0)).to(tl.int64)
    length = tl.load(boundaries + tl.program_id(0) + 1) - begin
    if length <= 0:
        return
    position, width = tl.arange(0, side), heads * dim
    valid, rows = position < length, begin + position
    distance = position[:, None] - position[None, :]
    for head in tl.range(tl.program_id(1), heads, tl.num_programs(1), num_stages=stages):
        column = head * dim + tl.arange(0, dim)
        q = _load(query, rows, valid, column, per_query)
        k = _load(key, rows, valid, column, per_key)
        v = _load(value, rows, valid, column, per_value)
        grad_o = _load(grad, rows, valid, column, per_grad)
        log_sum = tl.load(log_sums + rows * heads + head, mask=valid, other=float("inf"))
        scores = tl.dot(q, tl.trans(k)) * (scale * LOG2_E)
        scores = _mask_scores(scores, distance, valid[None, :], window, causal)
        weights = tl.exp2(scores - log_sum[:, None])
        grad_weights = tl.dot(grad_o, tl.trans(v))
        dropped = weights
        if drops:
            tile = tl.program_id(0) * heads + head
            keep = _keeps(tile, seed, position[:, None], position[None, :], side, dropout)
            dropped = tl.where(keep, weights / (1 - dropout), 0.0)
            grad_weights = tl.where(keep, grad_weights / (1 - dropout), 0.0)
        delta = tl.sum(weights * grad_weights, 1)
        ptr = out + rows[:, None] * (3 * width) + column[None, :]
        result = tl.dot(tl.trans(dropped.to(q.dtype)), grad_o)
        tl.store(ptr + 2 * width, result.to(q.dtype), mask=valid[:, None])
        # Registers are scarce here: keep only one of the weights and their rounded copy.
        exact = weights if drops else dropped.to(q.dtype).to(tl.float32)
        grad_scores = (exact * (grad_weights - delta[:, None]) * scale).to(q.dtype)
        result = tl.dot(tl.trans(grad_scores), q)
        tl.store(ptr + width, result.to(q.dtype), mask=valid[:, None])
        tl.store(ptr, tl.dot(grad_scores, k).to(q.dtype), mask=valid[:, None])


def launch(
    tile: triton.JITFunction,
    rows: list[Tensor],
    outputs: list[Tensor],
    boundaries: Tensor,
    longest: int,
    *options: float,
) -> None:
    """Run a program for every sequence and head. `rows` may be strided."""
    scale, window, causal, dropout = options
    _, heads, width = rows[0].shape
    side = max(16, triton.next_power_of_2(longest))
    count = len(boundaries) - 1
    programs, backward_only = heads, {}
    if tile is backward_tile:
        # A program loops over heads if the sequences alone keep the GPU busy, and prefetches the
        # next head if two heads fit into shared memory.
        programs = min(heads, triton.cdiv(BUSY, count))
        stages = 2 if _has_room(rows[0].device, side * width) else 1
        backward_only = {"heads": heads, "stages": stages}
    tile[(count, programs)](
        *rows,
        *outputs,
        boundaries,
        *(x.stride(0) for x in rows),
        scale,
        dropout,
        side=side,
        dim=width,
        window=window,
        causal=causal,
        drops=dropout > 0,
        **backward_only,
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
