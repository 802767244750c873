"""Triton programs that walk over rows: residual sum and norm, bias and GELU, cross entropy."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class Float8(NamedTuple):
    """Where an FP8 matrix is written transposed, and the factor (one number) of its values."""

    columns: Tensor
    scale: Tensor


COMPILED = tl.constexpr(not triton.knobs.runtime.interpret)
CASTS = (
    "{{.reg .b16 a, b; cvt.rn.satfinite.{0}.f32 a, $2, $1; cvt.rn.satfinite.{0}.f32 b, $4, $3; "
    "mov.b32 $0, {{a, b}};}}"
)
TO_E4M3, TO_E5M2 = (tl.constexpr(CASTS.format(kind)) for kind in ("e4m3x2", "e5m2x2"))
PROGRAMS = 1056  # that walk backward over all rows: eight for each multiprocessor of an H200


@triton.jit
def _kept(seed, places, dropout):
    """Which elements are not dropped: a hash of where they are (Murmur's finaliser)."""
    bits = places.to(tl.uint32) * 0x9E3779B1 ^ tl.load(seed).to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x85EBCA6B
    bits = (bits ^ (bits >> 13)) * 0xC2B2AE35
    bits = bits ^ (bits >> 16)
    return (bits >> 8).to(tl.float32) >= dropout * 16777216.0


@triton.jit
def norm_forward(
    x, update, bias, weight, shift, seed, total, out, means, scales, rows, epsilon, dropout,
    width: tl.constexpr, high: tl.constexpr, wide: tl.constexpr, biased: tl.constexpr,
    shifts: tl.constexpr, drops: tl.constexpr,
):  # fmt: skip
    """Sums x + dropout(update + bias) of `high` rows, and their norms."""
    row = tl.program_id(0) * high + tl.arange(0, high)
    column = tl.arange(0, wide)
    inside, real = column < width, row < rows
    mask = real[:, None] & inside[None, :]
    places = row.to(tl.int64)[:, None] * width + column[None, :]
    value = tl.load(x + places, mask=mask, other=0.0).to(tl.float32)
    more = tl.load(update + places, mask=mask, other=0.0).to(tl.float32)
    if biased:
        more += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    if drops:
        more = tl.where(_kept(seed, places, dropout), more / (1 - dropout), 0.0)
    rounded = (value + more).to(x.dtype.element_ty)
    tl.store(total + places, rounded, mask=mask)
    value = rounded.to(tl.float32)  # read by backward
    mean = tl.sum(value, 1) / width
    centred = tl.where(mask, value - mean[:, None], 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 1) / width + epsilon)
    tl.store(means + row, mean, mask=real)
    tl.store(scales + row, scale, mask=real)
    found = centred * scale[:, None]
    found *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    if shifts:
        found += tl.load(shift + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    tl.store(out + places, found.to(x.dtype.element_ty), mask=mask)


@triton.jit
def norm_backward(
    grad, more, grad_total, total, weight, seed, means, scales, out, out_update, sums, rows,
    dropout,
    width: tl.constexpr, high: tl.constexpr, wide: tl.constexpr, biases: tl.constexpr,
    second: tl.constexpr, residual: tl.constexpr, drops: tl.constexpr,
):  # fmt: skip
    """Gradients of a share of the rows, and their sums for weight, shift and bias.

    The gradients of the norms are those in `grad`, plus those in `more` if there is a second use.
    """
    column = tl.arange(0, wide)
    inside = column < width
    gamma = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    of_weight = tl.zeros((high, wide), tl.float32)
    of_shift = tl.zeros((high, wide), tl.float32)
    of_bias = tl.zeros((high, wide), tl.float32)
    stride = tl.num_programs(0) * high
    row = tl.program_id(0) * high + tl.arange(0, high)
    mask = (row < rows)[:, None] & inside[None, :]
    places = row.to(tl.int64)[:, None] * width + column[None, :]
    next_value = tl.load(total + places, mask=mask, other=0.0)
    next_back = tl.load(grad + places, mask=mask, other=0.0)
    next_more = next_back
    if second:
        next_more = tl.load(more + places, mask=mask, other=0.0)
    for first in tl.range(tl.program_id(0) * high, rows, stride):
        row = first + tl.arange(0, high)
        real = row < rows
        mask = real[:, None] & inside[None, :]
        places = row.to(tl.int64)[:, None] * width + column[None, :]
        value, back = next_value.to(tl.float32), next_back.to(tl.float32)
        if second:
            back += next_more.to(tl.float32)
        # Prefetch the rows of the next iteration: the kernel is bound by memory.
        ahead = (row + stride < rows)[:, None] & inside[None, :]
        next_value = tl.load(total + places + stride * width, mask=ahead, other=0.0)
        next_back = tl.load(grad + places + stride * width, mask=ahead, other=0.0)
        if second:
            next_more = tl.load(more + places + stride * width, mask=ahead, other=0.0)
        mean = tl.load(means + row, mask=real, other=0.0)[:, None]
        scale = tl.load(scales + row, mask=real, other=0.0)[:, None]
        unit = tl.where(mask, (value - mean) * scale, 0.0)
        of_weight += back * unit
        if biases:
            of_shift += back
        back *= gamma
        along, level = tl.sum(back * unit, 1) / width, tl.sum(back, 1) / width
        found = (back - unit * along[:, None] - level[:, None]) * scale
        if residual:
            found += tl.load(grad_total + places, mask=mask, other=0.0).to(tl.float32)
        tl.store(out + places, found.to(grad.dtype.element_ty), mask=mask)
        if drops:
            found = tl.where(_kept(seed, places, dropout), found / (1 - dropout), 0.0)
            tl.store(out_update + places, found.to(grad.dtype.element_ty), mask=mask)
        if biases:
            of_bias += tl.where(mask, found, 0.0)
    sums += tl.program_id(0) * 3 * width + column
    tl.store(sums, tl.sum(of_weight, 0), mask=inside)
    tl.store(sums + width, tl.sum(of_shift, 0), mask=inside)
    tl.store(sums + 2 * width, tl.sum(of_bias, 0), mask=inside)


@triton.jit
def _normal(x):
    """The standard normal distribution function at x, within 2e-6 (relative, below zero: 2e-5).

    The logarithm of its tail is nearly a polynomial: one exponential and seven multiply-adds. With
    an error function that is exact in float32, a GELU is bound by arithmetic, not by memory.
    """
    a = tl.abs(x)
    log = -0.000882168671 + a * (5.48385428e-05 + a * -1.47276293e-06)
    log = -0.458689142 + a * (-0.0536761525 + a * (0.00834154495 + a * log))
    tail = tl.exp2(-1.0 + a * (-1.151183 + a * log))
    return tl.where(x > 0, 1.0 - tail, tail)


@triton.jit
def _density(x):
    return tl.exp2(x * x * -0.7213475204444817) * 0.3989422804014327


@triton.jit
def _store_float8(value, scale, out, columns, row, column, rows, width, most, mask):
    """Write a tile in FP8, as it lies and transposed; values beyond `most` are clamped."""
    value *= scale
    if COMPILED:
        # Four at a time: if Triton casts pairs that are both stored and transposed, CUDA's
        # assembler (of Triton 3.6) loses every fourth value of the transposed copy.
        casts: tl.constexpr = TO_E4M3 if out.dtype.element_ty == tl.float8e4nv else TO_E5M2
        narrow = tl.inline_asm_elementwise(
            casts, "=r,r,r,r,r", [value], out.dtype.element_ty, True, 4
        )
    else:
        value = tl.clamp(value, -most, most, propagate_nan=tl.PropagateNan.ALL)
        narrow = value.to(out.dtype.element_ty)
    tl.store(out + row.to(tl.int64)[:, None] * width + column[None, :], narrow, mask=mask)
    places = column.to(tl.int64)[:, None] * rows + row[None, :]
    tl.store(columns + places, tl.trans(narrow), mask=tl.trans(mask))


@triton.jit
def cast_float8(
    x, scale, out, columns, sums, rows, width, most,
    high: tl.constexpr, wide: tl.constexpr, adds: tl.constexpr,
):  # fmt: skip
    """Cast a tile to FP8; also the sums of its columns, if wanted."""
    row = tl.program_id(0) * high + tl.arange(0, high)
    column = tl.program_id(1) * wide + tl.arange(0, wide)
    mask = (row < rows)[:, None] & (column < width)[None, :]
    places = row.to(tl.int64)[:, None] * width + column[None, :]
    value = tl.load(x + places, mask=mask, other=0.0).to(tl.float32)
    if adds:
        where = sums + tl.program_id(0) * width + column
        tl.store(where, tl.sum(value, 0), mask=column < width)
    _store_float8(value, tl.load(scale), out, columns, row, column, rows, width, most, mask)


@triton.jit
def _widened(x, narrow: tl.constexpr):
    """x in float32. For bfloat16 by instructions that the compiler does not know as a cast.

    Before a cast it would change the layout of x, since bfloat16 is the smaller, and then compute
    everything after it twice: in the layout of rows and in that of columns.
    """
    if narrow and COMPILED and x.dtype == tl.bfloat16:
        shifts: tl.constexpr = "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;"
        return tl.inline_asm_elementwise(shifts, "=r,=r,r", [x], tl.float32, True, 2)
    return x.to(tl.float32)


@triton.jit
def gelu_forward(
    x, bias, out, columns, scale, rows, most,
    width: tl.constexpr, high: tl.constexpr, wide: tl.constexpr, biased: tl.constexpr,
    gated: tl.constexpr, narrow: tl.constexpr,
):  # fmt: skip
    """GELU of x + bias; if gated, rows are twice as wide and the second half scales the first."""
    row = tl.program_id(0) * high + tl.arange(0, high)
    column = tl.program_id(1) * wide + tl.arange(0, wide)
    inside = column < width
    mask = (row < rows)[:, None] & inside[None, :]
    start = row.to(tl.int64)[:, None] * (width * (1 + gated)) + column[None, :]
    value = _widened(tl.load(x + start, mask=mask, other=0.0), narrow)
    if biased:
        value += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]
    found = value * _normal(value)
    if gated:
        gate = _widened(tl.load(x + start + width, mask=mask, other=0.0), narrow)
        if biased:
            gate += tl.load(bias + width + column, mask=inside, other=0.0).to(tl.float32)[None, :]
        found *= gate
    if narrow:
        _store_float8(found, tl.load(scale), out, columns, row, column, rows, width, most, mask)
    else:
        places = row.to(tl.int64)[:, None] * width + column[None, :]
        tl.store(out + places, found.to(x.dtype.element_ty), mask=mask)


@triton.jit
def gelu_backward(
    grad, x, bias, out, columns, scale, sums, rows, most,
    width: tl.constexpr, high: tl.constexpr, wide: tl.constexpr, biased: tl.constexpr,
    gated: tl.constexpr, narrow: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    """Gradients of a share of the rows in some columns, and their sums for the bias."""
    column = tl.program_id(1) * wide + tl.arange(0, wide)
    inside = column < width
    of_bent = tl.zeros((high, wide), tl.float32)
    of_gate = tl.zeros((high, wide), tl.float32)
    step = tl.num_programs(0) * high
    for first in tl.range(tl.program_id(0) * high, rows, step, num_stages=stages):
        row = first + tl.arange(0, high)
        mask = (row < rows)[:, None] & inside[None, :]
        start = row.to(tl.int64)[:, None] * (width * (1 + gated)) + column[None, :]
        places = row.to(tl.int64)[:, None] * width + column[None, :]
        value = tl.load(x + start, mask=mask, other=0.0).to(tl.float32)
        back = tl.load(grad + places, mask=mask, other=0.0).to(tl.float32)
        if biased:
            value += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]
        below = _normal(value)
        if gated:
            gate = tl.load(x + start + width, mask=mask, other=0.0).to(tl.float32)
            if biased:
                shift = tl.load(bias + width + column, mask=inside, other=0.0)
                gate += shift.to(tl.float32)[None, :]
            through = back * value * below
            if narrow:
                second = width + column
                _store_float8(
                    through, tl.load(scale), out, columns, row, second, rows, 2 * width, most, mask
                )
            else:
                tl.store(out + start + width, through.to(x.dtype.element_ty), mask=mask)
            if biased:
                of_gate += through
            back *= gate
        back *= below + value * _density(value)
        if narrow:
            full: tl.constexpr = width * (1 + gated)
            _store_float8(back, tl.load(scale), out, columns, row, column, rows, full, most, mask)
        else:
            tl.store(out + start, back.to(x.dtype.element_ty), mask=mask)
        if biased:
            of_bent += back
    if biased:
        sums += tl.program_id(0) * width * (1 + gated) + column
        tl.store(sums, tl.sum(of_bent, 0), mask=inside)
        if gated:
            tl.store(sums + width, tl.sum(of_gate, 0), mask=inside)


@triton.jit
def entropy_forward(logits, targets, losses, logs, hits, stride, columns, wide: tl.constexpr):
    """Cross entropy, log-sum-exp and correctness of one row."""
    row, lane = tl.program_id(0), tl.arange(0, wide)
    logits += row.to(tl.int64) * stride
    best = tl.full((wide,), float("-inf"), tl.float32)
    for first in tl.range(0, columns, wide):
        inside = first + lane < columns
        value = tl.load(logits + first + lane, mask=inside, other=float("-inf"))
        best = tl.maximum(best, value.to(tl.float32))
    most = tl.max(best, 0)
    # The row is in the cache now; ties go to the first, as in argmax.
    total, place = tl.zeros((wide,), tl.float32), tl.full((wide,), 2**31 - 1, tl.int32)
    for first in tl.range(0, columns, wide):
        inside = first + lane < columns
        value = tl.load(logits + first + lane, mask=inside, other=float("-inf")).to(tl.float32)
        total += tl.exp2((value - most) * 1.4426950408889634)
        place = tl.minimum(place, tl.where(value == most, first + lane, 2**31 - 1))
    log = most + tl.log(tl.sum(total, 0))
    target = tl.load(targets + row)
    chosen = tl.load(logits + tl.maximum(target, 0)).to(tl.float32)
    tl.store(losses + row, tl.where(target >= 0, log - chosen, 0.0))
    tl.store(logs + row, log)
    tl.store(hits + row, tl.min(place, 0) == target)


@triton.jit
def entropy_backward(grad, logits, targets, logs, out, stride, columns, wide: tl.constexpr):
    """The gradients of one row's logits."""
    row, lane = tl.program_id(0), tl.arange(0, wide)
    logits += row.to(tl.int64) * stride
    out += row.to(tl.int64) * columns
    target, log = tl.load(targets + row), tl.load(logs + row)
    scale = tl.where(target >= 0, tl.load(grad + row), 0.0)
    for first in tl.range(0, columns, wide):
        column = first + lane
        value = tl.load(logits + column, mask=column < columns, other=0.0).to(tl.float32)
        share = tl.exp2((value - log) * 1.4426950408889634)
        found = (share - (column == target).to(tl.float32)) * scale
        tl.store(out + column, found.to(out.dtype.element_ty), mask=column < columns)


@triton.jit
def column_sums(x, out, rows, columns, high: tl.constexpr, wide: tl.constexpr):
    """Sums of some columns."""
    column = tl.program_id(0) * wide + tl.arange(0, wide)
    total = tl.zeros((high, wide), tl.float32)
    for first in tl.range(0, rows, high):
        row = first + tl.arange(0, high)
        mask = (row < rows)[:, None] & (column < columns)[None, :]
        total += tl.load(x + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
    found = tl.sum(total, 0).to(out.dtype.element_ty)
    tl.store(out + column, found, mask=column < columns)


def tile(width: int, elements: int, most: int = 8192, warps: int = 0) -> dict[str, int]:
    """Rows and columns of a tile over rows of this width, and the warps for it."""
    wide = min(triton.next_power_of_2(width), most)
    elements = max(elements, wide)
    warps = warps or max(1, elements // 1024)
    return {"high": elements // wide, "wide": wide, "num_warps": warps}


def run_norm(
    x: Tensor, update: Tensor, bias: Tensor | None, weight: Tensor, shift: Tensor | None,
    seed: Tensor, written: Sequence[Tensor], epsilon: float, dropout: float,
) -> None:  # fmt: skip
    """Write sums, norms, means and scales."""
    rows, width = x.shape
    shape = tile(width, 4096)
    norm_forward[(triton.cdiv(rows, shape["high"]),)](
        x, update, _or(bias, x), weight, _or(shift, x), seed, *written, rows, epsilon, dropout,
        width=width, biased=bias is not None, shifts=shift is not None, drops=dropout > 0, **shape,
    )  # fmt: skip


def run_norm_back(
    grad: Tensor, more: Tensor | None, grad_total: Tensor | None, total: Tensor, weight: Tensor,
    seed: Tensor, stats: Sequence[Tensor], written: Sequence[Tensor], biases: bool, dropout: float,
) -> Tensor:  # fmt: skip
    """Write gradients of rows and updates; return those of weight, shift and bias (3, D)."""
    rows, width = grad.shape
    shape = tile(width, 1024)
    programs = min(PROGRAMS, triton.cdiv(rows, shape["high"]))
    sums = grad.new_empty(programs, 3, width, dtype=torch.float32)
    norm_backward[(programs,)](
        grad, _or(more, grad), _or(grad_total, grad), total, weight, seed, *stats, *written, sums,
        rows, dropout, width=width, biases=biases, second=more is not None,
        residual=grad_total is not None, drops=dropout > 0, **shape,
    )  # fmt: skip
    return summed(sums.flatten(1), weight.dtype).view(3, width)


def run_gelu(
    x: Tensor, bias: Tensor | None, out: Tensor, gated: bool, narrow: Float8 | None = None
) -> None:
    """Write the activations of rows; if `narrow`, in FP8, also transposed."""
    rows, width = out.shape
    shape = tile(width, 4096, 128, 4) if narrow else tile(width, 4096, 1024)
    grid = (triton.cdiv(rows, shape["high"]), triton.cdiv(width, shape["wide"]))
    gelu_forward[grid](
        x, _or(bias, x), out, *_target(narrow, x), rows, _most(out), width=width,
        biased=bias is not None, gated=gated, narrow=narrow is not None, **shape,
    )  # fmt: skip


def run_gelu_back(
    grad: Tensor, x: Tensor, bias: Tensor | None, out: Tensor, gated: bool,
    narrow: Float8 | None = None,
) -> Tensor | None:  # fmt: skip
    """Write the gradients of rows; return that of the bias."""
    rows, width = grad.shape
    shape = tile(width, 4096, 128, 8) if narrow else tile(width, 2048, 256)
    columns = triton.cdiv(width, shape["wide"])
    programs = min(triton.cdiv(PROGRAMS, columns), triton.cdiv(rows, shape["high"]))
    sums = grad.new_empty(programs, x.shape[1], dtype=torch.float32)
    gelu_backward[(programs, columns)](
        grad, x, _or(bias, x), out, *_target(narrow, x), sums, rows, _most(out), width=width,
        biased=bias is not None, gated=gated, narrow=narrow is not None,
        stages=4 if narrow else 1, **shape,
    )  # fmt: skip
    return None if bias is None else summed(sums, grad.dtype)


def run_cast(x: Tensor, out: Tensor, narrow: Float8, sums: bool = False) -> Tensor | None:
    """Write a matrix in FP8, as it lies and transposed; return the sums of columns if wanted."""
    rows, width = x.shape
    shape = tile(width, 8192, 64, 4) if sums else tile(width, 8192, 256, 8)
    grid = (triton.cdiv(rows, shape["high"]), triton.cdiv(width, shape["wide"]))
    parts = x.new_empty(grid[0] if sums else 0, width, dtype=torch.float32)
    cast_float8[grid](
        x, narrow.scale, out, narrow.columns, parts, rows, width, _most(out), adds=sums, **shape
    )
    return summed(parts, x.dtype) if sums else None


def summed(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The sums of all columns of float32 rows."""
    rows, columns = x.shape
    out = x.new_empty(columns, dtype=dtype)
    column_sums[(triton.cdiv(columns, 32),)](
        x, out, rows, columns, high=min(256, triton.next_power_of_2(rows)), wide=32, num_warps=8
    )
    return out


def run_entropy(logits: Tensor, targets: Tensor, written: Sequence[Tensor]) -> None:
    """Write the losses, logs of sums and hits of rows."""
    rows, columns = logits.shape
    wide = min(4096, triton.next_power_of_2(columns))
    entropy_forward[(rows,)](
        logits, targets, *written, logits.stride(0), columns, wide=wide, num_warps=8
    )


def run_entropy_back(
    grad: Tensor, logits: Tensor, targets: Tensor, logs: Tensor, out: Tensor
) -> None:
    """Write the gradients of logits."""
    rows, columns = logits.shape
    wide = min(4096, triton.next_power_of_2(columns))
    entropy_backward[(rows,)](
        grad, logits, targets, logs, out, logits.stride(0), columns, wide=wide, num_warps=8
    )


def _or(tensor: Tensor | None, other: Tensor) -> Tensor:
    """Return a pointer that is not read if there is no tensor."""
    return other if tensor is None else tensor


def _target(narrow: Float8 | None, other: Tensor) -> tuple[Tensor, Tensor]:
    return (other, other) if narrow is None else (narrow.columns, narrow.scale)


def _most(out: Tensor) -> float:
    return torch.finfo(out.dtype).max
