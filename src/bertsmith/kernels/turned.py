"""The Triton programs behind attention with relative positions in short sequences.

One program computes one head of one sequence, as in `tiles`. The product of query i and the vector
of the distance i - j is computed in row i, column (i - j) mod side: columns up to i hold distances
from zero on, the others negative ones. Turning row i by i moves it to column j, where the score is.
Turning twice changes nothing, so the gradients of scores come back to distances in the same way.
Keys are multiplied with the vectors of j - i likewise, in tiles of (keys, queries).
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from bertsmith.kernels.tiles import LOG2_E, _keeps, _load, _mask_scores

LONGEST = 128
SPLITS = 32  # parts of the sequences over which the gradients of position vectors are summed


@triton.jit
def _turned_by_lanes(x, place):
    """The same for 128 columns with a quarter of the exchanges between threads.

    Lanes of a warp exchange values within 32 columns; each thread then turns its four registers.
    """
    lane = tl.arange(0, 32)
    back = place[:, None] - lane[None, :]
    order = tl.broadcast_to((back & 31)[:, None, :], (128, 4, 32))
    x = tl.gather(tl.reshape(x, (128, 4, 32)), order, 2)
    even, odd = tl.split(tl.reshape(tl.permute(x, (0, 2, 1)), (128, 32, 2, 2)))
    a, c = tl.split(even)
    d, b = tl.split(odd)  # reversed: columns run backwards
    once, twice = (back & 32) != 0, (back & 64) != 0
    one, two = tl.where(once, d, a), tl.where(once, a, b)
    three, four = tl.where(once, b, c), tl.where(once, c, d)
    a, b = tl.where(twice, three, one), tl.where(twice, four, two)
    c, d = tl.where(twice, one, three), tl.where(twice, two, four)
    x = tl.join(tl.join(a, c), tl.join(b, d))
    return tl.reshape(tl.permute(tl.reshape(x, (128, 32, 4)), (0, 2, 1)), (128, 128))


@triton.jit
def _turned(x, place, side: tl.constexpr):
    """Row i with its columns in the order (i - j) mod side."""
    if side == 128:
        x = _turned_by_lanes(x, place)
    else:
        x = tl.gather(x, (place[:, None] - place[None, :]) & (side - 1), 1)
    return x


@triton.jit
def _vectors(table, place, inner, per_table, side: tl.constexpr):
    """The vectors of distances from zero on, and of the negative ones: (side, wide) each."""
    where = table + place[:, None] * per_table + inner[None, :]
    return tl.load(where + side * per_table), tl.load(where)


@triton.jit
def _met(x, table, place, inner, per_table, scale, side: tl.constexpr):
    """Products of rows with the vectors of their distance to each column, as powers of two."""
    ahead, behind = _vectors(table, place, inner, per_table, side)
    near = place[None, :] <= place[:, None]
    low = (tl.dot(x, tl.trans(behind)) * (scale * LOG2_E)).to(x.dtype)
    high = (tl.dot(x, tl.trans(ahead)) * (scale * LOG2_E)).to(x.dtype)
    return _turned(tl.where(near, high, low), place, side)


@triton.jit
def _scores(
    q, k, near, far, place, inner, real, per_near, per_far, scale,
    side: tl.constexpr, window: tl.constexpr, causal: tl.constexpr,
    by_query: tl.constexpr, by_key: tl.constexpr,
):  # fmt: skip
    """Scores (queries, keys) as powers of two."""
    scores = tl.zeros([side, side], tl.float32)
    if by_key:
        scores += tl.trans(_met(k, far, place, inner, per_far, scale, side)).to(tl.float32)
    if by_query:
        scores += _met(q, near, place, inner, per_near, scale, side).to(tl.float32)
    scores += tl.dot(q, tl.trans(k)) * (scale * LOG2_E)
    return _mask_scores(scores, place[:, None] - place[None, :], real[None, :], window, causal)


@triton.jit
def forward_turned(
    query, key, value, near, far, out, sums, seed, boundaries,
    per_query, per_key, per_value, per_near, per_far, per_out, tokens, first, heads, scale, dropout,
    side: tl.constexpr, wide: tl.constexpr, window: tl.constexpr, causal: tl.constexpr,
    drops: tl.constexpr, by_query: tl.constexpr, by_key: tl.constexpr,
):  # fmt: skip
    """The output of one head for one sequence."""
    head = tl.program_id(1).to(tl.int64)
    begin = tl.load(boundaries + tl.program_id(0)).to(tl.int64)
    length = tl.load(boundaries + tl.program_id(0) + 1) - begin
    if length <= 0:
        return
    place, inner = tl.arange(0, side), head * wide + tl.arange(0, wide)
    real, rows = place < length, begin + place
    q = _load(query, rows, real, inner, per_query)
    k = _load(key, rows, real, inner, per_key)
    v = _load(value, rows, real, inner, per_value)
    scores = _scores(
        q, k, near, far, place, inner, real, per_near, per_far, scale,
        side, window, causal, by_query, by_key,
    )  # fmt: skip
    most = tl.maximum(tl.max(scores, 1), -1e30)  # no infinities where no key is visible
    weights = tl.exp2(scores - most[:, None])
    total = tl.maximum(tl.sum(weights, 1), 1e-30)
    tl.store(sums + head * tokens + rows, most + tl.log2(total), mask=real)
    if drops:
        tile = tl.program_id(0) * heads + first + tl.program_id(1)
        kept = _keeps(tile, seed, place[:, None], place[None, :], side, dropout)
        weights = tl.where(kept, weights / (1 - dropout), 0.0)
    found = tl.dot(weights.to(v.dtype), v) / total[:, None]
    where = out + rows[:, None] * per_out + inner[None, :]
    tl.store(where, found.to(v.dtype), mask=real[:, None])


@triton.jit
def _through(steps, turned, rows, table, place, real, inner, per_table, side: tl.constexpr):
    """What the gradients of scores add to those of rows; they are kept by distance."""
    steps = _turned(steps, place, side)
    where = turned + rows[:, None] * side + place[None, :]
    tl.store(where, steps, mask=real[:, None])
    ahead, behind = _vectors(table, place, inner, per_table, side)
    near = place[None, :] <= place[:, None]
    none = tl.zeros_like(steps)
    found = tl.dot(tl.where(near, steps, none), ahead)
    return tl.dot(tl.where(near, none, steps), behind, found)


@triton.jit
def backward_turned(
    query, key, value, grad, near, far, near_steps, far_steps, joint, sums, seed, boundaries,
    per_query, per_key, per_value, per_grad, per_near, per_far, per_joint, width, tokens, first,
    heads, scale, dropout,
    side: tl.constexpr, wide: tl.constexpr, window: tl.constexpr, causal: tl.constexpr,
    drops: tl.constexpr, by_query: tl.constexpr, by_key: tl.constexpr,
):  # fmt: skip
    """The gradients of one head in one sequence, and of its scores, by distance."""
    head = tl.program_id(1).to(tl.int64)
    begin = tl.load(boundaries + tl.program_id(0)).to(tl.int64)
    length = tl.load(boundaries + tl.program_id(0) + 1) - begin
    if length <= 0:
        return
    place, inner = tl.arange(0, side), head * wide + tl.arange(0, wide)
    real, rows = place < length, begin + place
    q = _load(query, rows, real, inner, per_query)
    k = _load(key, rows, real, inner, per_key)
    scores = _scores(
        q, k, near, far, place, inner, real, per_near, per_far, scale,
        side, window, causal, by_query, by_key,
    )  # fmt: skip
    total = tl.load(sums + head * tokens + rows, mask=real, other=float("inf"))
    weights = tl.exp2(scores - total[:, None])
    v = _load(value, rows, real, inner, per_value)
    g = _load(grad, rows, real, inner, per_grad)
    back = tl.dot(g, tl.trans(v))
    used = weights
    if drops:
        tile = tl.program_id(0) * heads + first + tl.program_id(1)
        kept = _keeps(tile, seed, place[:, None], place[None, :], side, dropout)
        used = tl.where(kept, weights / (1 - dropout), 0.0)
        back = tl.where(kept, back / (1 - dropout), 0.0)
    where = joint + rows[:, None] * per_joint + inner[None, :]
    level = tl.sum(weights * back, 1)
    found = tl.dot(tl.trans(used.to(q.dtype)), g)
    tl.store(where + 2 * width, found.to(q.dtype), mask=real[:, None])
    again = weights if drops else used.to(q.dtype).to(tl.float32)  # registers are scarce
    steps = (again * (back - level[:, None]) * scale).to(q.dtype)
    across = tl.trans(steps)
    of_query, of_key = tl.dot(steps, k), tl.dot(across, q)
    if by_query:
        own = near_steps + head * tokens * side
        of_query += _through(steps, own, rows, near, place, real, inner, per_near, side)
    tl.store(where, of_query.to(q.dtype), mask=real[:, None])
    if by_key:
        own = far_steps + head * tokens * side
        of_key += _through(across, own, rows, far, place, real, inner, per_far, side)
    tl.store(where + width, of_key.to(q.dtype), mask=real[:, None])


@triton.jit
def vector_sums(
    steps, table, out, boundaries, per_row, tokens, count, share, heads,
    side: tl.constexpr, wide: tl.constexpr, tall: tl.constexpr,
):  # fmt: skip
    """The gradients of position vectors, summed over a share of the sequences."""
    head, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column, inner = tl.arange(0, side), tl.arange(0, wide)
    ahead = tl.zeros([side, wide], tl.float32)
    behind = tl.zeros([side, wide], tl.float32)
    for number in range(part * share, tl.minimum((part + 1) * share, count)):
        begin = tl.load(boundaries + number).to(tl.int64)
        length = tl.load(boundaries + number + 1) - begin
        for start in range(0, length, tall):
            place = start + tl.arange(0, tall)
            row, real = begin + place, place < length
            where = steps + (head * tokens + row)[:, None] * side + column[None, :]
            cells = tl.load(where, mask=real[:, None], other=0.0)
            x = _load(table, row, real, head * wide + inner, per_row)
            near, none = column[None, :] <= place[:, None], tl.zeros_like(cells)
            ahead = tl.dot(tl.trans(tl.where(near, cells, none)), x, ahead)
            behind = tl.dot(tl.trans(tl.where(near, none, cells)), x, behind)
    where = ((part * 2 * side + column)[:, None] * heads + head) * wide + inner[None, :]
    tl.store(out + where + side * heads * wide, ahead)
    tl.store(out + where, behind)


def forward(
    parts: list[Tensor],
    tables: list[Tensor | None],
    out: Tensor,
    sums: Tensor,
    seed: Tensor,
    boundaries: Tensor,
    first: int,
    heads: int,
    *how: float,
) -> None:
    """Run `forward_turned` on the heads in `parts`, which begin at head `first` of `heads`."""
    scale, dropout, options = _options(parts[0], tables, *how)
    near, far = (parts[0] if table is None else table for table in tables)
    forward_turned[(len(boundaries) - 1, parts[0].shape[1])](
        *parts, near, far, out, sums, seed, boundaries,
        *(x.stride(0) for x in (*parts, near, far, out)),
        *(len(out), first, heads, scale, dropout),
        **options,
    )  # fmt: skip


def backward(
    parts: list[Tensor],
    tables: list[Tensor | None],
    joint: Tensor,
    sums: Tensor,
    seed: Tensor,
    boundaries: Tensor,
    first: int,
    heads: int,
    *how: float,
) -> list[Tensor | None]:
    """Write the gradients of rows into `joint`; returns those of the tables.

    `parts` are queries, keys, values and gradients; `joint` (T, 3, h, d) may be strided.
    """
    scale, dropout, options = _options(parts[0], tables, *how)
    near, far = (parts[0] if table is None else table for table in tables)
    across, size = parts[0].shape[1], (parts[0].shape[1], len(joint), options["side"])
    steps = [None if table is None else joint.new_empty(size) for table in tables]
    backward_turned[(len(boundaries) - 1, across)](
        *parts, near, far, *(joint if x is None else x for x in steps), joint, sums, seed,
        boundaries, *(x.stride(0) for x in (*parts, near, far, joint)),
        *(joint.stride(1), len(joint), first, heads, scale, dropout),
        **options,
    )  # fmt: skip
    return [
        None if step is None else _by_distance(step, x, boundaries)
        for step, x in zip(steps, parts, strict=False)
    ]


def _by_distance(steps: Tensor, rows: Tensor, boundaries: Tensor) -> Tensor:
    """The gradients of position vectors: (h, T, side) and (T, h, d) → (2 * side, h, d).

    Sums of fixed parts, so that equal inputs have equal results.
    """
    (heads, tokens, side), width = steps.shape, rows.shape[-1]
    count = len(boundaries) - 1
    sums = steps.new_empty((SPLITS, 2 * side, heads, width), dtype=torch.float32)
    vector_sums[(heads, SPLITS)](
        *(steps, rows, sums, boundaries, rows.stride(0), tokens),
        *(count, triton.cdiv(count, SPLITS), heads),
        side=side,
        wide=width,
        tall=min(side, 64),
        num_warps=8,
    )
    return sums.sum(0).to(rows.dtype)


def _options(
    query: Tensor, tables: list[Tensor | None], *how: float
) -> tuple[float, float, dict[str, int]]:
    longest, scale, window, causal, dropout = how
    side = max(16, triton.next_power_of_2(int(longest)))
    options = {
        "side": side,
        "wide": query.shape[-1],
        "window": int(window),
        "causal": bool(causal),
        "drops": dropout > 0,
        "by_query": tables[0] is not None,
        "by_key": tables[1] is not None,
        "num_warps": 8 if side == LONGEST else 4,
    }
    return scale, dropout, options
