"""Attention with DeBERTa's relative positions, in Triton: no padding, no (H, n, n) in memory.

The score of query i and key j is the sum of three products: query and key, query and the position
vector of the distance i - j, key and another vector of that distance. Vectors are laid out by
distance, also where distances share a row of the table: every score has an element of its own, and
the backward pass needs no atomic sums.

For sequences of at most 128 tokens, `turned` computes all products in one program. For longer ones,
the products of all tokens with the vectors of all distances are two matrix multiplications, whose
results `bands` reads. They are computed again for backward, and for some heads at a time if there
are many tokens.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from bertsmith.kernels import short
from bertsmith.kernels.ragged import is_ampere, ragged_attention
from bertsmith.kernels.short import HALVES, _contiguous_heads, _empty_gradients, _split

WIDTHS = (16, 32, 64)  # head widths; wider ones need more shared memory than many GPUs have
ELEMENTS = 1 << 30  # of a band at a time
TURNED = 128  # the longest sequences that `turned` computes, others are for `bands`


def fits_relative(query: Tensor) -> bool:
    """Return whether to use the kernel."""
    return query.dtype in HALVES and runs_relative(query.shape[-1], query.device)


def runs_relative(width: int, device: torch.device) -> bool:
    """Return whether the kernel supports heads of this width on a device, in half precision."""
    return short.TRITON and width in WIDTHS and is_ampere(device)


def fits_turned(rows: Tensor, longest: int) -> bool:
    """Return whether one tile holds a sequence: then nothing is stored by distance."""
    return longest <= TURNED and rows.dtype in HALVES


def relative_attention(
    rows: Sequence[Tensor],
    boundaries: Tensor,
    longest: int,
    scale: float,
    window: int | None,
    causal: bool,
    dropout: float,
    keys: Tensor | None,
    queries: Tensor | None,
    distances: Tensor,
) -> Tensor:
    """As `short_attention`, for any length, with scores of content against distance.

    `keys` are the vectors (R, H, d) that queries are multiplied with, `queries` those for keys; a
    model may have only one of them, or none. `distances` (2m-1,) is the row of each distance from
    -(m-1) to m-1.
    """
    if keys is None and queries is None:
        how = (boundaries, longest, scale, window, causal, dropout)
        return ragged_attention(rows[0].unbind(1) if len(rows) == 1 else rows, *how)
    seed = boundaries[:1]  # of dropout; not read without
    if dropout:
        seed = torch.randint(2**31 - 1, (1,), dtype=torch.int32, device=boundaries.device)
    near = -1 if window is None else window
    side = band_side(longest)
    columns = torch.arange(-side, side, device=distances.device)
    dtype = rows[0].dtype
    tables = [
        _laid_out(table.to(dtype), distances, columns * sign)
        for table, sign in ((keys, 1), (queries, -1))
        if table is not None
    ]
    kind = 1 * (keys is not None) + 2 * (queries is not None)
    return _relative(
        list(rows), tables, boundaries, seed, kind, longest, scale, near, causal, dropout
    )[0]


def band_side(longest: int) -> int:
    """Half of the columns of a band: a power of two.

    Found by comparisons, which torch.compile can trace if `longest` varies.
    """
    side = 16
    while side < longest:
        side *= 2
    return side


class DistanceRows:
    """The table row of each distance on a device, computed once for each power of two.

    Tensors are never replaced, since CUDA graphs read them at their address.
    """

    def __init__(self, span: int, buckets: int, furthest: int, floored: bool = False) -> None:
        self.how = (span, buckets, furthest, floored)
        self.kept: dict[tuple[int, torch.device], Tensor] = {}

    def __call__(self, longest: int, device: torch.device) -> Tensor:
        """The rows of distances from -(m-1) to m-1, where m is at least `longest`: (2m-1,)."""
        most = band_side(longest)
        if (most, device) not in self.kept:
            with torch.inference_mode(False):  # training may read it, too
                self.kept[most, device] = distance_rows(most, *self.how).to(device)
        return self.kept[most, device]


def distance_rows(
    longest: int, span: int, buckets: int, furthest: int, floored: bool = False
) -> Tensor:
    """The table row of each distance from -(longest-1) to longest-1.

    With buckets, distances up to half of them keep a row each and further ones share rows
    in equal steps of their logarithm, as DeBERTa-v2 does. `floored`: T5's buckets instead, half of
    them for each direction. Computed on the CPU in float32: the ceiling of a logarithm must not
    depend on the device.
    """
    distance = torch.arange(1 - longest, longest)
    if floored:
        return _floored_rows(distance, buckets // 2, furthest)
    if buckets > 0:
        middle = buckets // 2
        size = distance.abs().clamp(min=middle)
        reach = torch.log(torch.tensor((furthest - 1) / middle))
        steps = torch.ceil(torch.log(size / middle) / reach * (middle - 1)) + middle
        far = (steps * distance.sign()).long()
        distance = torch.where(distance.abs() <= middle, distance, far)
    return (distance + span).clamp(0, 2 * span - 1)


def _floored_rows(distance: Tensor, side: int, furthest: int) -> Tensor:
    """T5's buckets, `side` for each direction: distances below half of them have one each."""
    exact, size = side // 2, distance.abs()
    steps = torch.log(size.clamp(min=exact).float() / exact) / math.log(furthest / exact)
    far = (exact + (steps * (side - exact)).long()).clamp(max=side - 1)
    return torch.where(size < exact, size, far) + side * (distance < 0)


def _laid_out(table: Tensor, distances: Tensor, columns: Tensor) -> Tensor:
    """The vector of each column's distance: (R, H, d) → (W, H, d).

    A product with ones and zeros is exact, and its backward sums in a fixed order.
    """
    middle = len(distances) // 2
    row = distances[(columns + middle).clamp(0, 2 * middle)]
    chosen = row[:, None] == torch.arange(len(table), device=row.device)
    return (chosen.to(table.dtype) @ table.flatten(1)).unflatten(1, table.shape[1:])


@torch.library.custom_op("bertsmith::relative_attention", mutates_args=())
def _relative(
    rows: list[Tensor],
    tables: list[Tensor],
    boundaries: Tensor,
    seed: Tensor,
    kind: int,
    longest: int,
    scale: float,
    window: int,
    causal: bool,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Return the outputs (T, H, d), and the log-sum-exps (H, T) for backward.

    `kind` says which tables there are: 1, the one for queries; 2, the one for keys; 3, both.
    """
    from bertsmith.kernels import bands, turned

    out, sums = _outputs(rows)
    how = (longest, scale, window, causal, dropout)
    for some in _some_heads(out, tables):
        parts, pair = [x[:, some] for x in _split(rows)], _pair(tables, kind, some)
        where = (out[:, some], sums[some], seed, boundaries, some.start, out.shape[1])
        if fits_turned(out, longest):
            turned.forward(parts, pair, *where, *how)
        else:
            bands.forward(parts, _bands(parts, pair, scale), *where, *how)
    return out, sums


@torch.library.custom_op("bertsmith::relative_attention_back", mutates_args=())
def _back(
    grad: Tensor,
    out: Tensor,
    rows: list[Tensor],
    tables: list[Tensor],
    sums: Tensor,
    boundaries: Tensor,
    seed: Tensor,
    kind: int,
    longest: int,
    scale: float,
    window: int,
    causal: bool,
    dropout: float,
) -> list[Tensor]:
    """Return the gradients of queries, keys and values (T, 3, H, d), then those of the tables."""
    from bertsmith.kernels import bands, turned

    joint, *to_tables = results = _gradients(grad, out, rows, tables)
    how = (longest, scale, window, causal, dropout)
    for some in _some_heads(out, tables):
        parts = [
            x[:, some] for x in (*_split(rows), _contiguous_heads(grad), _contiguous_heads(out))
        ]
        pair = _pair(tables, kind, some)
        own = joint[:, :, some]
        where = (own, sums[some], seed, boundaries, some.start, out.shape[1])
        written = iter(to_tables)
        if fits_turned(out, longest):
            for found in turned.backward(parts[:4], pair, *where, *how):
                if found is not None:
                    next(written)[:, some] = found
            continue
        steps = bands.backward(parts, _bands(parts, pair, scale), *where, *how)
        for x, to_x, table, step in zip(parts, own.unbind(1), pair, steps, strict=False):
            if table is not None and step is not None:
                to_x.transpose(0, 1).baddbmm_(step, table.transpose(0, 1))
                next(written)[:, some] = bands.by_distance(step, x)
    return results


def _outputs(rows: Sequence[Tensor], *_: Any) -> tuple[Tensor, Tensor]:
    query = _split(rows)[0]
    count, heads, _width = query.shape
    return query.new_empty(query.shape), query.new_empty((heads, count), dtype=torch.float32)


def _gradients(grad: Tensor, out: Tensor, rows: Any, tables: list[Tensor], *_: Any) -> list[Tensor]:
    return [_empty_gradients(grad), *(torch.zeros_like(table) for table in tables)]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    rows, tables, boundaries, seed, *ctx.how = inputs
    ctx.save_for_backward(*output, boundaries, seed, *tables, *rows)
    ctx.mark_non_differentiable(output[1])
    ctx.tables = len(tables)


def _differentiate(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    out, sums, boundaries, seed, *rest = ctx.saved_tensors
    tables, rows = rest[: ctx.tables], rest[ctx.tables :]
    joint, *to_tables = _back(grad, out, rows, tables, sums, boundaries, seed, *ctx.how)
    grads = [joint] if len(rows) == 1 else list(joint.unbind(1))
    return (grads, to_tables, None, None, *(None for _ in ctx.how))


_relative.register_fake(_outputs)
_back.register_fake(_gradients)
_relative.register_autograd(_differentiate, setup_context=_remember)


def _some_heads(out: Tensor, tables: list[Tensor]) -> Iterator[slice]:
    """Heads whose bands are in memory at once."""
    tokens, heads, _ = out.shape
    each = max(1, ELEMENTS // max(1, tokens * len(tables[0])))
    yield from (slice(n, min(n + each, heads)) for n in range(0, heads if tokens else 0, each))


def _pair(tables: list[Tensor], kind: int, heads: slice) -> list[Tensor | None]:
    """The tables for queries and for keys, of some heads."""
    rest = iter(tables)
    return [next(rest)[:, heads] if kind & bit else None for bit in (1, 2)]


def _bands(parts: list[Tensor], pair: list[Tensor | None], scale: float) -> list[Tensor | None]:
    """Products of queries, and of keys, with position vectors (h, T, W), for powers of two."""
    products: list[Tensor | None] = []
    for x, table in zip(parts, pair, strict=False):
        band = None
        if table is not None:
            band = x.new_empty(x.shape[1], len(x), len(table))
            vectors, alpha = table.permute(1, 2, 0), scale / math.log(2)
            # Scaled before it is rounded: in float16 products could overflow.
            band.baddbmm_(x.transpose(0, 1), vectors, beta=0, alpha=alpha)
        products.append(band)
    return products
