"""The Triton programs behind attention with relative positions in long sequences.

A band (H, T, 2 * side) holds the dot products of each token with the position vectors of all
distances, which are added to scores. For query i and key j, the band of queries is read at row i,
column i - j + side, and the band of keys at row j, column j - i + side. So a block of scores is a
block of a band whose row stride is longer by one. No two scores read the same element, so that
gradients need no atomic additions. Names are those of `tiles`.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from bertsmith.kernels.tiles import LOG2_E, _keeps, _load, _mask_scores

ANY = ("tokens", "share")  # arguments whose values compile no other program
SPLITS = 16  # parts of the tokens, whose gradients of position vectors are summed apart


class Tiling(NamedTuple):
    """The block sizes of a program, and its numbers of warps and pipeline stages."""

    queries: int
    keys: int
    warps: int
    stages: int = 1


def tiling(side: int, dtype: torch.dtype, backward: bool) -> Tiling:
    """The fastest tiling known for sequences of at most `side` tokens."""
    if dtype == torch.float32:  # twice the shared memory
        return Tiling(min(side, 32), min(side, 32), 4)
    # Registers are scarce in backward. Sequences of at most 128 are for `turned`.
    return Tiling(16, 128, 4) if backward else Tiling(128, 32, 4)


@triton.jit
def _band_at(row, band_column, side: tl.constexpr):
    """Offsets of elements of a band from the first row of a sequence.

    Columns decrease, so that the compiler does not vectorize loads: rows are not aligned, and the
    elements of a load would be spread over more memory.
    """
    return row[:, None] * (2 * side + 1) + (side - band_column[None, :])


@triton.jit
def _scores(
    q, k, q_band, k_band, q_at, k_at, q_valid, k_valid, scale,
    side: tl.constexpr, window: tl.constexpr, causal: tl.constexpr,
    by_query: tl.constexpr, by_key: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Scores (queries, keys) in units of log 2; bands are scaled before."""
    scores = tl.dot(q, tl.trans(k), input_precision=precision) * (scale * LOG2_E)
    if by_query:
        ptr = q_band + _band_at(q_at, k_at, side)
        scores += tl.load(ptr, mask=q_valid[:, None] & k_valid[None, :], other=0.0).to(tl.float32)
    if by_key:  # loaded along its rows, which are keys
        ptr = k_band + _band_at(k_at, q_at, side)
        bias = tl.load(ptr, mask=k_valid[:, None] & q_valid[None, :], other=0.0)
        scores += tl.trans(bias).to(tl.float32)
    return _mask_scores(scores, q_at[:, None] - k_at[None, :], k_valid[None, :], window, causal)


@triton.jit
def _add_keys(
    q, key, value, q_band, k_band, seed, k_start, begin, length, q_at, q_valid, column, tile,
    row_max, total, acc, per_key, per_value, scale, dropout,
    side: tl.constexpr, k_block: tl.constexpr, window: tl.constexpr, causal: tl.constexpr,
    drops: tl.constexpr, by_query: tl.constexpr, by_key: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """A step of online softmax: row maximum, row sum and weighted values with a block of keys."""
    k_at = k_start + tl.arange(0, k_block)
    k_valid = k_at < length
    k = _load(key, begin + k_at, k_valid, column, per_key)
    v = _load(value, begin + k_at, k_valid, column, per_value)
    scores = _scores(
        q, k, q_band, k_band, q_at, k_at, q_valid, k_valid, scale,
        side, window, causal, by_query, by_key, precision,
    )  # fmt: skip
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    weights = tl.exp2(scores - new_max[:, None])
    rescale = tl.exp2(row_max - new_max)
    total = total * rescale + tl.sum(weights, 1)
    if drops:
        keep = _keeps(tile, seed, q_at[:, None], k_at[None, :], side, dropout)
        weights = tl.where(keep, weights / (1 - dropout), 0.0)
    acc = acc * rescale[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=precision)
    return new_max, total, acc


@triton.jit(do_not_specialize=ANY)
def forward_rows(
    query, key, value, q_band, k_band, out, log_sums, seed, boundaries,
    per_query, per_key, per_value, per_out, tokens, blocks, first, heads, scale, dropout,
    side: tl.constexpr, dim: tl.constexpr, q_block: tl.constexpr, k_block: tl.constexpr,
    window: tl.constexpr, causal: tl.constexpr, drops: tl.constexpr,
    by_query: tl.constexpr, by_key: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """The output of one head for a block of queries of one sequence."""
    number, head = tl.program_id(0) // blocks, tl.program_id(1).to(tl.int64)
    begin = tl.load(boundaries + number)
    length = tl.load(boundaries + number + 1) - begin
    q_start = (tl.program_id(0) % blocks) * q_block
    if q_start >= length:
        return
    begin = begin.to(tl.int64)
    q_at, column = q_start + tl.arange(0, q_block), head * dim + tl.arange(0, dim)
    q_valid = q_at < length
    q = _load(query, begin + q_at, q_valid, column, per_query)
    q_band += (head * tokens + begin) * (2 * side)
    k_band += (head * tokens + begin) * (2 * side)
    row_max = tl.full([q_block], -1e30, tl.float32)  # finite also where no key is visible
    total = tl.zeros([q_block], tl.float32)
    acc = tl.zeros([q_block, dim], tl.float32)
    tile = number * heads + first + tl.program_id(1)
    for k_start in range(0, length, k_block):
        row_max, total, acc = _add_keys(
            q, key, value, q_band, k_band, seed, k_start, begin, length, q_at, q_valid, column,
            tile, row_max, total, acc, per_key, per_value, scale, dropout,
            side, k_block, window, causal, drops, by_query, by_key, precision,
        )  # fmt: skip
    total = tl.maximum(total, 1e-30)
    tl.store(log_sums + head * tokens + begin + q_at, row_max + tl.log2(total), mask=q_valid)
    ptr = out + (begin + q_at)[:, None] * per_out + column[None, :]
    tl.store(ptr, (acc / total[:, None]).to(q.dtype), mask=q_valid[:, None])


@triton.jit(do_not_specialize=ANY)
def backward_columns(
    query, key, value, grad, out, q_band, k_band, q_band_grad, k_band_grad, grads, log_sums,
    seed, boundaries, per_query, per_key, per_value, per_grad, per_out, per_grads,
    tokens, blocks, first, heads, scale, dropout,
    side: tl.constexpr, dim: tl.constexpr, q_block: tl.constexpr, k_block: tl.constexpr,
    window: tl.constexpr, causal: tl.constexpr, drops: tl.constexpr,
    by_query: tl.constexpr, by_key: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of keys and values, and of the bands, for one head of one sequence.

    The gradients of bands must be zeros before the call.
    """
    number, head = tl.program_id(0) // blocks, tl.program_id(1).to(tl.int64)
    begin = tl.load(boundaries + number)
    length = tl.load(boundaries + number + 1) - begin
    k_start = (tl.program_id(0) % blocks) * k_block
    if k_start >= length:
        return
    begin = begin.to(tl.int64)
    k_at, column = k_start + tl.arange(0, k_block), head * dim + tl.arange(0, dim)
    k_valid = k_at < length
    k = _load(key, begin + k_at, k_valid, column, per_key)
    v = _load(value, begin + k_at, k_valid, column, per_value)
    band = (head * tokens + begin) * (2 * side)
    q_band += band
    k_band += band
    q_band_grad += band
    k_band_grad += band
    grad_k = tl.zeros([k_block, dim], tl.float32)
    grad_v = tl.zeros([k_block, dim], tl.float32)
    width = heads * dim
    for q_start in range(0, length, q_block):
        q_at = q_start + tl.arange(0, q_block)
        q_valid = q_at < length
        q = _load(query, begin + q_at, q_valid, column, per_query)
        grad_o = _load(grad, begin + q_at, q_valid, column, per_grad)
        log_sum = tl.load(log_sums + head * tokens + begin + q_at, mask=q_valid, other=float("inf"))
        scores = _scores(
            q, k, q_band, k_band, q_at, k_at, q_valid, k_valid, scale,
            side, window, causal, by_query, by_key, precision,
        )  # fmt: skip
        weights = tl.exp2(scores - log_sum[:, None])
        grad_weights = tl.dot(grad_o, tl.trans(v), input_precision=precision)
        dropped = weights
        if drops:
            tile = number * heads + first + tl.program_id(1)
            keep = _keeps(tile, seed, q_at[:, None], k_at[None, :], side, dropout)
            dropped = tl.where(keep, weights / (1 - dropout), 0.0)
            grad_weights = tl.where(keep, grad_weights / (1 - dropout), 0.0)
        grad_v += tl.dot(tl.trans(dropped.to(q.dtype)), grad_o, input_precision=precision)
        o = _load(out, begin + q_at, q_valid, column, per_out)
        delta = tl.sum(grad_o.to(tl.float32) * o.to(tl.float32), 1)
        grad_scores = (weights * (grad_weights - delta[:, None]) * scale).to(q.dtype)
        grad_k += tl.dot(tl.trans(grad_scores), q, input_precision=precision)
        if by_query:
            ptr = q_band_grad + _band_at(q_at, k_at, side)
            tl.store(ptr, grad_scores, mask=q_valid[:, None] & k_valid[None, :])
        if by_key:
            ptr = k_band_grad + _band_at(k_at, q_at, side)
            tl.store(ptr, tl.trans(grad_scores), mask=k_valid[:, None] & q_valid[None, :])
    ptr = grads + (begin + k_at)[:, None] * per_grads + column[None, :]
    tl.store(ptr + width, grad_k.to(k.dtype), mask=k_valid[:, None])
    tl.store(ptr + 2 * width, grad_v.to(k.dtype), mask=k_valid[:, None])


@triton.jit(do_not_specialize=ANY)
def backward_queries(
    key, q_band_grad, k_band_grad, grads, boundaries, per_key, per_grads, tokens, blocks,
    side: tl.constexpr, dim: tl.constexpr, q_block: tl.constexpr, k_block: tl.constexpr,
    by_query: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of queries, from the gradients of scores in a band."""
    number, head = tl.program_id(0) // blocks, tl.program_id(1).to(tl.int64)
    begin = tl.load(boundaries + number)
    length = tl.load(boundaries + number + 1) - begin
    q_start = (tl.program_id(0) % blocks) * q_block
    if q_start >= length:
        return
    begin = begin.to(tl.int64)
    q_at, column = q_start + tl.arange(0, q_block), head * dim + tl.arange(0, dim)
    q_valid = q_at < length
    band = (head * tokens + begin) * (2 * side)
    grad_q = tl.zeros([q_block, dim], tl.float32)
    for k_start in range(0, length, k_block):
        k_at = k_start + tl.arange(0, k_block)
        k_valid = k_at < length
        k = _load(key, begin + k_at, k_valid, column, per_key)
        if by_query:
            ptr = q_band_grad + band + _band_at(q_at, k_at, side)
            grad_scores = tl.load(ptr, mask=q_valid[:, None] & k_valid[None, :], other=0.0)
        else:
            ptr = k_band_grad + band + _band_at(k_at, q_at, side)
            grad_scores = tl.trans(
                tl.load(ptr, mask=k_valid[:, None] & q_valid[None, :], other=0.0)
            )
        grad_q += tl.dot(grad_scores, k, input_precision=precision)
    ptr = grads + (begin + q_at)[:, None] * per_grads + column[None, :]
    tl.store(ptr, grad_q.to(grads.dtype.element_ty), mask=q_valid[:, None])


@triton.jit(do_not_specialize=ANY)
def distance_sums(
    grad_scores, rows, out, per_row, tokens, share, heads,
    columns: tl.constexpr, dim: tl.constexpr, q_block: tl.constexpr, k_block: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """The matrix multiplication band.T @ rows of one head, over a part of the tokens."""
    head, part = tl.program_id(1).to(tl.int64), tl.program_id(2)
    band_column, column = tl.program_id(0) * k_block + tl.arange(0, k_block), tl.arange(0, dim)
    last = tl.minimum((part + 1) * share, tokens)
    total = tl.zeros([k_block, dim], tl.float32)
    for q_start in range(part * share, last, q_block):
        row = q_start + tl.arange(0, q_block).to(tl.int64)
        k_valid = (row < last)[:, None]
        band = grad_scores + (head * tokens + row)[:, None] * columns + band_column[None, :]
        bias = tl.load(band, mask=k_valid, other=0.0)
        x = tl.load(
            rows + row[:, None] * per_row + head * dim + column[None, :], k_valid, other=0.0
        )
        total += tl.dot(tl.trans(bias), x, input_precision=precision)
    ptr = ((part * columns + band_column)[:, None] * heads + head) * dim + column[None, :]
    tl.store(out + ptr, total)


def forward(
    parts: list[Tensor],
    bands: list[Tensor | None],
    out: Tensor,
    log_sums: Tensor,
    seed: Tensor,
    boundaries: Tensor,
    first: int,
    heads: int,
    *options: float,
) -> None:
    """Run `forward_rows` on the heads in `parts`, which begin at head `first` of `heads`."""
    side, scale, dropout, constants = _constants(parts[0], bands, *options)
    tile = tiling(side, out.dtype, backward=False)
    q_band, k_band = (out if band is None else band for band in bands)
    blocks = triton.cdiv(side, tile.queries)
    forward_rows[((len(boundaries) - 1) * blocks, parts[0].shape[1])](
        *(*parts, q_band, k_band, out, log_sums, seed, boundaries),
        *(x.stride(0) for x in (*parts, out)),
        *(len(out), blocks, first, heads, scale, dropout),
        **constants,
        **_tiled(tile),
    )


def backward(
    parts: list[Tensor],
    bands: list[Tensor | None],
    grads: Tensor,
    log_sums: Tensor,
    seed: Tensor,
    boundaries: Tensor,
    first: int,
    heads: int,
    *options: float,
) -> list[Tensor | None]:
    """Write the gradients of queries, keys and values into `grads`; return those of the bands.

    `parts` are queries, keys, values, gradients and outputs; `grads` (T, 3, h, d) may be strided.
    """
    side, scale, dropout, constants = _constants(parts[0], bands, *options)
    tile = tiling(side, grads.dtype, backward=True)
    band_grads = [None if band is None else torch.zeros_like(band) for band in bands]
    q_band, k_band, q_band_grad, k_band_grad = (
        grads if x is None else x for x in (*bands, *band_grads)
    )
    count, across = len(boundaries) - 1, parts[0].shape[1]
    blocks, tokens = triton.cdiv(side, tile.keys), len(grads)
    backward_columns[(count * blocks, across)](
        *(*parts, q_band, k_band, q_band_grad, k_band_grad, grads, log_sums, seed, boundaries),
        *(x.stride(0) for x in (*parts, grads)),
        *(tokens, blocks, first, heads, scale, dropout),
        **constants,
        **_tiled(tile),
    )
    blocks = triton.cdiv(side, tile.queries)
    for name in ("window", "causal", "drops", "by_key"):
        constants.pop(name)
    backward_queries[(count * blocks, across)](
        *(parts[1], q_band_grad, k_band_grad, grads, boundaries),
        *(parts[1].stride(0), grads.stride(0), tokens, blocks),
        **constants,
        **_tiled(tile),
    )
    return band_grads


def by_distance(grad_scores: Tensor, rows: Tensor) -> Tensor:
    """The gradient of position vectors: (h, T, W) and (T, h, d) → (W, h, d).

    Fixed parts of the tokens are summed apart, so that results are deterministic; one batched
    matrix multiplication has too few outputs to keep all multiprocessors busy.
    """
    (heads, tokens, columns), width = grad_scores.shape, rows.shape[-1]
    share = triton.cdiv(max(tokens, 1), SPLITS)
    k_block = min(columns, 128)
    q_block = 64 if grad_scores.dtype != torch.float32 else 32
    log_sums = grad_scores.new_empty((SPLITS, columns, heads, width), dtype=torch.float32)
    distance_sums[(columns // k_block, heads, SPLITS)](
        *(grad_scores, rows, log_sums, rows.stride(0), tokens, share, heads),
        columns=columns,
        dim=width,
        q_block=q_block,
        k_block=k_block,
        precision=_precision(grad_scores),
        num_warps=4,
        num_stages=3,
    )
    return log_sums.sum(0).to(rows.dtype)


def _constants(
    query: Tensor, bands: list[Tensor | None], *options: float
) -> tuple[int, float, float, dict[str, object]]:
    longest, scale, window, causal, dropout = options
    side = max(16, triton.next_power_of_2(int(longest)))
    constants = {
        "side": side,
        "dim": query.shape[-1],
        "window": window,
        "causal": causal,
        "drops": dropout > 0,
        "by_query": bands[0] is not None,
        "by_key": bands[1] is not None,
        "precision": _precision(query),
    }
    return side, scale, dropout, constants


def _tiled(tile: Tiling) -> dict[str, int]:
    queries, keys, warps, stages = tile
    return {"q_block": queries, "k_block": keys, "num_warps": warps, "num_stages": stages}


def _precision(x: Tensor) -> str | None:
    """Float32 is not rounded to TF32."""
    return "ieee" if x.dtype == torch.float32 else None
