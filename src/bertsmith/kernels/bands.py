"""The Triton programs behind attention with relative positions in long sequences.

A band (H, T, 2 * side) holds the products of each token with the position vectors of all distances.
In a band of queries, the score of query i and key j is in row i, column i - j + side; in a band of
keys, it is in row j, column j - i + side. So a tile of scores is read from a band with a row stride
that is longer by one, no two scores share an element, and gradients need no atomic sums.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from bertsmith.kernels.tiles import BASE, _kept, _masked, _tile

ANY = ("tokens", "share")  # one compiled program for all values of these
SPLITS = 16  # parts of the tokens over which the gradients of position vectors are summed


class Tiling(NamedTuple):
    """How much of a sequence a program computes at a time, and with how many warps."""

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
def _cell(row, column, side: tl.constexpr):
    """The elements of a band, counted from the first row of a sequence.

    Columns run backwards, so that the compiler does not try to load several at once: as rows are
    not aligned, it would only spread the elements of a load over more memory.
    """
    return row[:, None] * (2 * side + 1) + (side - column[None, :])


@triton.jit
def _scores(
    q, k, near, far, asking, asked, asks, real, scale, side: tl.constexpr, window: tl.constexpr,
    causal: tl.constexpr, by_query: tl.constexpr, by_key: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Scores (queries, keys) as powers of two; bands come scaled."""
    scores = tl.dot(q, tl.trans(k), input_precision=precision) * (scale * BASE)
    if by_query:
        where = near + _cell(asking, asked, side)
        scores += tl.load(where, mask=asks[:, None] & real[None, :], other=0.0).to(tl.float32)
    if by_key:  # loaded along its rows, which are keys
        where = far + _cell(asked, asking, side)
        cells = tl.load(where, mask=real[:, None] & asks[None, :], other=0.0)
        scores += tl.trans(cells).to(tl.float32)
    return _masked(scores, asking[:, None] - asked[None, :], real[None, :], window, causal)


@triton.jit
def _attended(
    q, key, value, near, far, seed, left, begin, length, asking, asks, inner, tile,
    most, total, mixed, per_key, per_value, scale, dropout,
    side: tl.constexpr, broad: tl.constexpr, window: tl.constexpr, causal: tl.constexpr,
    drops: tl.constexpr, by_query: tl.constexpr, by_key: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """The largest score, sum of weights and weighted values after some more keys."""
    asked = left + tl.arange(0, broad)
    real = asked < length
    k = _tile(key, begin + asked, real, inner, per_key)
    v = _tile(value, begin + asked, real, inner, per_value)
    scores = _scores(
        q, k, near, far, asking, asked, asks, real, scale,
        side, window, causal, by_query, by_key, precision,
    )  # fmt: skip
    higher = tl.maximum(most, tl.max(scores, 1))
    weights = tl.exp2(scores - higher[:, None])
    shrink = tl.exp2(most - higher)
    total = total * shrink + tl.sum(weights, 1)
    if drops:
        kept = _kept(tile, seed, asking[:, None], asked[None, :], side, dropout)
        weights = tl.where(kept, weights / (1 - dropout), 0.0)
    mixed = mixed * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=precision)
    return higher, total, mixed


@triton.jit(do_not_specialize=ANY)
def forward_rows(
    query, key, value, near, far, out, sums, seed, boundaries,
    per_query, per_key, per_value, per_out, tokens, blocks, first, heads, scale, dropout,
    side: tl.constexpr, wide: tl.constexpr, tall: tl.constexpr, broad: tl.constexpr,
    window: tl.constexpr, causal: tl.constexpr, drops: tl.constexpr,
    by_query: tl.constexpr, by_key: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """The output of one head for some queries of one sequence."""
    number, head = tl.program_id(0) // blocks, tl.program_id(1).to(tl.int64)
    begin = tl.load(boundaries + number)
    length = tl.load(boundaries + number + 1) - begin
    start = (tl.program_id(0) % blocks) * tall
    if start >= length:
        return
    begin = begin.to(tl.int64)
    asking, inner = start + tl.arange(0, tall), head * wide + tl.arange(0, wide)
    asks = asking < length
    q = _tile(query, begin + asking, asks, inner, per_query)
    near += (head * tokens + begin) * (2 * side)
    far += (head * tokens + begin) * (2 * side)
    most = tl.full([tall], -1e30, tl.float32)  # no infinities where no key is visible
    total = tl.zeros([tall], tl.float32)
    mixed = tl.zeros([tall, wide], tl.float32)
    tile = number * heads + first + tl.program_id(1)
    for left in range(0, length, broad):
        most, total, mixed = _attended(
            q, key, value, near, far, seed, left, begin, length, asking, asks, inner, tile,
            most, total, mixed, per_key, per_value, scale, dropout,
            side, broad, window, causal, drops, by_query, by_key, precision,
        )  # fmt: skip
    total = tl.maximum(total, 1e-30)
    tl.store(sums + head * tokens + begin + asking, most + tl.log2(total), mask=asks)
    where = out + (begin + asking)[:, None] * per_out + inner[None, :]
    tl.store(where, (mixed / total[:, None]).to(q.dtype), mask=asks[:, None])


@triton.jit(do_not_specialize=ANY)
def backward_columns(
    query, key, value, grad, out, near, far, near_grad, far_grad, joint, sums, seed, boundaries,
    per_query, per_key, per_value, per_grad, per_out, per_joint, tokens, blocks, first, heads,
    scale, dropout,
    side: tl.constexpr, wide: tl.constexpr, tall: tl.constexpr, broad: tl.constexpr,
    window: tl.constexpr, causal: tl.constexpr, drops: tl.constexpr,
    by_query: tl.constexpr, by_key: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """The gradients of some keys and values, and of the bands, for one head of one sequence.

    The gradients of bands have to be zeros before.
    """
    number, head = tl.program_id(0) // blocks, tl.program_id(1).to(tl.int64)
    begin = tl.load(boundaries + number)
    length = tl.load(boundaries + number + 1) - begin
    left = (tl.program_id(0) % blocks) * broad
    if left >= length:
        return
    begin = begin.to(tl.int64)
    asked, inner = left + tl.arange(0, broad), head * wide + tl.arange(0, wide)
    real = asked < length
    k = _tile(key, begin + asked, real, inner, per_key)
    v = _tile(value, begin + asked, real, inner, per_value)
    band = (head * tokens + begin) * (2 * side)
    near += band
    far += band
    near_grad += band
    far_grad += band
    to_key = tl.zeros([broad, wide], tl.float32)
    to_value = tl.zeros([broad, wide], tl.float32)
    width = heads * wide
    for start in range(0, length, tall):
        asking = start + tl.arange(0, tall)
        asks = asking < length
        q = _tile(query, begin + asking, asks, inner, per_query)
        g = _tile(grad, begin + asking, asks, inner, per_grad)
        total = tl.load(sums + head * tokens + begin + asking, mask=asks, other=float("inf"))
        scores = _scores(
            q, k, near, far, asking, asked, asks, real, scale,
            side, window, causal, by_query, by_key, precision,
        )  # fmt: skip
        weights = tl.exp2(scores - total[:, None])
        back = tl.dot(g, tl.trans(v), input_precision=precision)
        used = weights
        if drops:
            tile = number * heads + first + tl.program_id(1)
            kept = _kept(tile, seed, asking[:, None], asked[None, :], side, dropout)
            used = tl.where(kept, weights / (1 - dropout), 0.0)
            back = tl.where(kept, back / (1 - dropout), 0.0)
        to_value += tl.dot(tl.trans(used.to(q.dtype)), g, input_precision=precision)
        o = _tile(out, begin + asking, asks, inner, per_out)
        level = tl.sum(g.to(tl.float32) * o.to(tl.float32), 1)
        steps = (weights * (back - level[:, None]) * scale).to(q.dtype)
        to_key += tl.dot(tl.trans(steps), q, input_precision=precision)
        if by_query:
            where = near_grad + _cell(asking, asked, side)
            tl.store(where, steps, mask=asks[:, None] & real[None, :])
        if by_key:
            where = far_grad + _cell(asked, asking, side)
            tl.store(where, tl.trans(steps), mask=real[:, None] & asks[None, :])
    where = joint + (begin + asked)[:, None] * per_joint + inner[None, :]
    tl.store(where + width, to_key.to(k.dtype), mask=real[:, None])
    tl.store(where + 2 * width, to_value.to(k.dtype), mask=real[:, None])


@triton.jit(do_not_specialize=ANY)
def backward_queries(
    key, near_grad, far_grad, joint, boundaries, per_key, per_joint, tokens, blocks,
    side: tl.constexpr, wide: tl.constexpr, tall: tl.constexpr, broad: tl.constexpr,
    by_query: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """The gradients of some queries of one head, from the gradients of scores in a band."""
    number, head = tl.program_id(0) // blocks, tl.program_id(1).to(tl.int64)
    begin = tl.load(boundaries + number)
    length = tl.load(boundaries + number + 1) - begin
    start = (tl.program_id(0) % blocks) * tall
    if start >= length:
        return
    begin = begin.to(tl.int64)
    asking, inner = start + tl.arange(0, tall), head * wide + tl.arange(0, wide)
    asks = asking < length
    band = (head * tokens + begin) * (2 * side)
    to_query = tl.zeros([tall, wide], tl.float32)
    for left in range(0, length, broad):
        asked = left + tl.arange(0, broad)
        real = asked < length
        k = _tile(key, begin + asked, real, inner, per_key)
        if by_query:
            where = near_grad + band + _cell(asking, asked, side)
            steps = tl.load(where, mask=asks[:, None] & real[None, :], other=0.0)
        else:
            where = far_grad + band + _cell(asked, asking, side)
            steps = tl.trans(tl.load(where, mask=real[:, None] & asks[None, :], other=0.0))
        to_query += tl.dot(steps, k, input_precision=precision)
    where = joint + (begin + asking)[:, None] * per_joint + inner[None, :]
    tl.store(where, to_query.to(joint.dtype.element_ty), mask=asks[:, None])


@triton.jit(do_not_specialize=ANY)
def distance_sums(
    steps, rows, out, per_row, tokens, share, heads,
    columns: tl.constexpr, wide: tl.constexpr, tall: tl.constexpr, broad: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """Products of a band's columns with rows, summed over a share of the tokens."""
    head, part = tl.program_id(1).to(tl.int64), tl.program_id(2)
    column, inner = tl.program_id(0) * broad + tl.arange(0, broad), tl.arange(0, wide)
    last = tl.minimum((part + 1) * share, tokens)
    total = tl.zeros([broad, wide], tl.float32)
    for start in range(part * share, last, tall):
        row = start + tl.arange(0, tall).to(tl.int64)
        real = (row < last)[:, None]
        band = steps + (head * tokens + row)[:, None] * columns + column[None, :]
        cells = tl.load(band, mask=real, other=0.0)
        x = tl.load(rows + row[:, None] * per_row + head * wide + inner[None, :], real, other=0.0)
        total += tl.dot(tl.trans(cells), x, input_precision=precision)
    where = ((part * columns + column)[:, None] * heads + head) * wide + inner[None, :]
    tl.store(out + where, total)


def forward(
    parts: list[Tensor],
    bands: list[Tensor | None],
    out: Tensor,
    sums: Tensor,
    seed: Tensor,
    boundaries: Tensor,
    first: int,
    heads: int,
    *how: float,
) -> None:
    """Run `forward_rows` on the heads in `parts`, which begin at head `first` of `heads`."""
    side, scale, dropout, options = _options(parts[0], bands, *how)
    tile = tiling(side, out.dtype, backward=False)
    near, far = (out if band is None else band for band in bands)
    blocks = triton.cdiv(side, tile.queries)
    forward_rows[((len(boundaries) - 1) * blocks, parts[0].shape[1])](
        *(*parts, near, far, out, sums, seed, boundaries),
        *(x.stride(0) for x in (*parts, out)),
        *(len(out), blocks, first, heads, scale, dropout),
        **options,
        **_tiled(tile),
    )


def backward(
    parts: list[Tensor],
    bands: list[Tensor | None],
    joint: Tensor,
    sums: Tensor,
    seed: Tensor,
    boundaries: Tensor,
    first: int,
    heads: int,
    *how: float,
) -> list[Tensor | None]:
    """Write the gradients that do not come from bands into `joint`; returns those of the bands.

    `parts` are queries, keys, values, gradients and outputs; `joint` (T, 3, h, d) may be strided.
    """
    side, scale, dropout, options = _options(parts[0], bands, *how)
    tile = tiling(side, joint.dtype, backward=True)
    grads = [None if band is None else torch.zeros_like(band) for band in bands]
    near, far, near_grad, far_grad = (joint if x is None else x for x in (*bands, *grads))
    count, across = len(boundaries) - 1, parts[0].shape[1]
    blocks, tokens = triton.cdiv(side, tile.keys), len(joint)
    backward_columns[(count * blocks, across)](
        *(*parts, near, far, near_grad, far_grad, joint, sums, seed, boundaries),
        *(x.stride(0) for x in (*parts, joint)),
        *(tokens, blocks, first, heads, scale, dropout),
        **options,
        **_tiled(tile),
    )
    blocks = triton.cdiv(side, tile.queries)
    for name in ("window", "causal", "drops", "by_key"):
        options.pop(name)
    backward_queries[(count * blocks, across)](
        *(parts[1], near_grad, far_grad, joint, boundaries),
        *(parts[1].stride(0), joint.stride(0), tokens, blocks),
        **options,
        **_tiled(tile),
    )
    return grads


def by_distance(steps: Tensor, rows: Tensor) -> Tensor:
    """The gradient of position vectors: (h, T, W) and (T, h, d) → (W, h, d).

    Sums of fixed parts, so that equal inputs have equal results; batched matrix multiplications
    with so few outputs would keep few multiprocessors busy.
    """
    (heads, tokens, columns), width = steps.shape, rows.shape[-1]
    share = triton.cdiv(max(tokens, 1), SPLITS)
    broad = min(columns, 128)
    tall = 64 if steps.dtype != torch.float32 else 32
    sums = steps.new_empty((SPLITS, columns, heads, width), dtype=torch.float32)
    distance_sums[(columns // broad, heads, SPLITS)](
        *(steps, rows, sums, rows.stride(0), tokens, share, heads),
        columns=columns,
        wide=width,
        tall=tall,
        broad=broad,
        precision=_precision(steps),
        num_warps=4,
        num_stages=3,
    )
    return sums.sum(0).to(rows.dtype)


def _options(
    query: Tensor, bands: list[Tensor | None], *how: float
) -> tuple[int, float, float, dict[str, object]]:
    longest, scale, window, causal, dropout = how
    side = max(16, triton.next_power_of_2(int(longest)))
    options = {
        "side": side,
        "wide": query.shape[-1],
        "window": window,
        "causal": causal,
        "drops": dropout > 0,
        "by_query": bands[0] is not None,
        "by_key": bands[1] is not None,
        "precision": _precision(query),
    }
    return side, scale, dropout, options


def _tiled(tile: Tiling) -> dict[str, int]:
    queries, keys, warps, stages = tile
    return {"tall": queries, "broad": keys, "num_warps": warps, "num_stages": stages}


def _precision(x: Tensor) -> str | None:
    """Float32 is not rounded to TF32."""
    return "ieee" if x.dtype == torch.float32 else None
