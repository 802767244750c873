"""Casts to FP8, eight-bit floating point, for matrix multiplications of training.

The GPU multiplies FP8 matrices at twice the rate of bfloat16, if both store the summed dimension
contiguously. Forward sums over columns, the gradients of weights sum over rows: so each matrix is
written twice, as it lies and transposed, by the kernel that computes it where that is one of ours.
Weights and activations are e4m3 (four bits of exponent), gradients e5m2 (larger range).
"""

from typing import Any

import torch
from torch import Tensor

from bertsmith.kernels.short import TRITON

ALIGNED = 16  # sizes of FP8 matrices are multiples of this
NARROW, RANGE = torch.float8_e4m3fn, torch.float8_e5m2
Pair = tuple[Tensor, Tensor]


def has_float8(device: torch.device) -> bool:
    """Return whether a GPU multiplies FP8 matrices: Ada, Hopper, Blackwell."""
    there = TRITON and device.type == "cuda"
    return there and torch.cuda.get_device_capability(device) >= (8, 9)


@torch.library.custom_op("bertsmith::to_float8", mutates_args=())
def to_float8(x: Tensor, scale: Tensor, gradient: bool) -> Pair:
    """Return x * scale in FP8 (N, M), and its transpose (M, N)."""
    from bertsmith.kernels import rowwise

    out, columns = _pair(x, scale, gradient)
    rowwise.run_cast(x.contiguous(), out, rowwise.Float8(columns, scale))
    return out, columns


@torch.library.custom_op("bertsmith::to_float8_and_sum", mutates_args=())
def to_float8_and_sum(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same for gradients, and the sums of their columns: the gradient of a bias."""
    from bertsmith.kernels import rowwise

    out, columns = _pair(x, scale, True)
    sums = rowwise.run_cast(x.contiguous(), out, rowwise.Float8(columns, scale), sums=True)
    assert sums is not None
    return out, columns, sums


@torch.library.custom_op("bertsmith::gelu_float8", mutates_args=())
def gelu_float8(x: Tensor, bias: Tensor | None, gated: bool, scale: Tensor) -> Pair:
    """`fused.bias_gelu` that writes FP8."""
    from bertsmith.kernels import rowwise

    out, columns = _bent(x, bias, gated, scale)
    rowwise.run_gelu(x.contiguous(), bias, out, gated, rowwise.Float8(columns, scale))
    return out, columns


@torch.library.custom_op("bertsmith::gelu_back_float8", mutates_args=())
def gelu_back_float8(
    grad: Tensor, x: Tensor, bias: Tensor | None, gated: bool, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `fused.bias_gelu`: of rows in FP8, and of the bias, if any."""
    from bertsmith.kernels import rowwise

    x, (out, columns) = x.contiguous(), _pair(x, scale, True)
    narrow = rowwise.Float8(columns, scale)
    sums = rowwise.run_gelu_back(grad.contiguous(), x, bias, out, gated, narrow)
    return out, columns, grad.new_empty(0) if sums is None else sums


def _pair(x: Tensor, scale: Tensor, gradient: bool) -> Pair:
    dtype = RANGE if gradient else NARROW
    return x.new_empty(x.shape, dtype=dtype), x.new_empty(x.shape[::-1], dtype=dtype)


def _bent(x: Tensor, _: Tensor | None, gated: bool, scale: Tensor) -> Pair:
    return _pair(x[:, : x.shape[1] // (1 + gated)], scale, False)


def _back(grad: Tensor, x: Tensor, bias: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:
    return *_pair(x, grad, True), grad.new_empty(0 if bias is None else x.shape[1])


to_float8.register_fake(_pair)
to_float8_and_sum.register_fake(lambda x, scale: (*_pair(x, scale, True), x.new_empty(x.shape[1])))
gelu_float8.register_fake(_bent)
gelu_back_float8.register_fake(_back)
