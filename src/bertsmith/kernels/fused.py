"""Fused operations between matrix multiplications, forward and backward.

torch.compile computes the gradients of a norm's weight and of a layer's bias in separate passes
over all rows. Here they are by-products of the pass that computes the gradients of the rows.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.kernels.ragged import is_ampere
from bertsmith.kernels.short import HALVES, TRITON

WIDEST = 8192  # rows that fit a program's registers


def add_norm(
    x: Tensor, inner: Tensor, linear: nn.Module, dropout: nn.Module, norm: nn.Module
) -> tuple[Tensor, Tensor]:
    """The residual sum x + dropout(linear(inner)), and its norm: (T, D) each."""
    if not (_plain(linear, nn.Linear) and _plain(norm, nn.LayerNorm) and fits_fused(x)):
        total = x + dropout(linear(inner))
        return total, norm(total)
    layer: Any = linear
    last: Any = norm
    share: Any = dropout.p if dropout.training else 0.0
    parameters = (layer.bias, last.weight, last.bias, last.eps)
    return sum_and_norm(x, F.linear(inner, layer.weight), *parameters, share)


def up_gelu(x: Tensor, linear: nn.Module, activation: nn.Module, gated: bool = False) -> Tensor:
    """The activation of linear(x); if gated, activation(first half) times second half."""
    exact = isinstance(activation, nn.GELU) and activation.approximate == "none"
    if exact and _plain(linear, nn.Linear) and fits_fused(x):
        assert isinstance(linear, nn.Linear)
        return bias_gelu(F.linear(x, linear.weight), linear.bias, gated)
    if not gated:
        return activation(linear(x))
    bent, gate = linear(x).chunk(2, dim=-1)
    return activation(bent) * gate


def fits_fused(x: Tensor) -> bool:
    """Return whether to use the kernels: in compiled graphs only, since launches are slow."""
    here = TRITON and torch.compiler.is_compiling() and is_ampere(x.device)
    return here and x.ndim == 2 and x.shape[1] <= WIDEST and x.dtype in HALVES


def _plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Return whether a module is a plain torch module without hooks."""
    return type(module) is kind and not module._forward_hooks and not module._forward_pre_hooks


def sum_and_norm(
    x: Tensor,
    update: Tensor,
    bias: Tensor | None,
    weight: Tensor,
    shift: Tensor | None,
    epsilon: float,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """x + dropout(update + bias), and its layer norm: (T, D) each."""
    seed = x.new_empty(1, dtype=torch.int32)
    if dropout:
        seed = torch.randint(2**31 - 1, (1,), dtype=torch.int32, device=x.device)
    return _norm(x, update, bias, weight, shift, seed, epsilon, dropout)[:2]


def bias_gelu(x: Tensor, bias: Tensor | None, gated: bool = False) -> Tensor:
    """GELU of x + bias; if gated, GELU(first half) times second half: (T, 2F) → (T, F)."""
    return _gelu(x, bias, gated)


@torch.library.custom_op("bertsmith::norm", mutates_args=())
def _norm(
    x: Tensor,
    update: Tensor,
    bias: Tensor | None,
    weight: Tensor,
    shift: Tensor | None,
    seed: Tensor,
    epsilon: float,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return sums, norms, and the mean and scale of each row for backward."""
    from bertsmith.kernels import rowwise

    written = _normed(x)
    rows = (x.contiguous(), update.contiguous())
    rowwise.run_norm(*rows, bias, weight, shift, seed, written, epsilon, dropout)
    return written


@torch.library.custom_op("bertsmith::norm_back", mutates_args=())
def _norm_back(
    grad: Tensor,
    more: Tensor | None,
    grad_total: Tensor | None,
    total: Tensor,
    weight: Tensor,
    seed: Tensor,
    means: Tensor,
    scales: Tensor,
    biases: bool,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradients of rows, of updates (none if equal), and of the parameters (3, D).

    `more` is added to the gradients of the norms; those of the sums are in `grad_total`.
    """
    from bertsmith.kernels import rowwise

    grad = grad.contiguous()
    more, grad_total = (None if x is None else x.contiguous() for x in (more, grad_total))
    written = torch.empty_like(grad), grad.new_empty(grad.shape if dropout else 0)
    sums = rowwise.run_norm_back(
        grad, more, grad_total, total, weight, seed, [means, scales], written, biases, dropout
    )
    return *written, sums


@torch.library.custom_op("bertsmith::gelu", mutates_args=())
def _gelu(x: Tensor, bias: Tensor | None, gated: bool) -> Tensor:
    from bertsmith.kernels import rowwise

    x, out = x.contiguous(), _bent(x, bias, gated)
    rowwise.run_gelu(x, bias, out, gated)
    return out


@torch.library.custom_op("bertsmith::gelu_back", mutates_args=())
def _gelu_back(grad: Tensor, x: Tensor, bias: Tensor | None, gated: bool) -> tuple[Tensor, Tensor]:
    """Return the gradients of rows and of the bias, if any."""
    from bertsmith.kernels import rowwise

    x = x.contiguous()
    out = torch.empty_like(x)
    sums = rowwise.run_gelu_back(grad.contiguous(), x, bias, out, gated)
    return out, grad.new_empty(0) if sums is None else sums


def _normed(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    means, scales = (x.new_empty(x.shape[:1], dtype=torch.float32) for _ in range(2))
    return x.new_empty(x.shape), x.new_empty(x.shape), means, scales


def _back_of_norm(grad: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    weight, dropout = given[3], given[-1]
    update = grad.new_empty(grad.shape if dropout else 0)
    return grad.new_empty(grad.shape), update, weight.new_empty(3, grad.shape[1])


def _bent(x: Tensor, _: Tensor | None, gated: bool) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1] // (1 + gated))


def _back_of_gelu(
    grad: Tensor, x: Tensor, bias: Tensor | None, gated: bool
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), grad.new_empty(0 if bias is None else x.shape[1])


def _remember_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, bias, weight, shift, seed, _, ctx.dropout = inputs
    total, _, means, scales = output
    ctx.biased, ctx.shifts = bias is not None, shift is not None
    ctx.save_for_backward(total, weight, seed, means, scales)
    ctx.mark_non_differentiable(means, scales)
    ctx.set_materialize_grads(False)  # the sum is often not used otherwise


def _differentiate_norm(
    ctx: Any, grad_total: Tensor | None, grad: Tensor | None, *_: Any
) -> tuple[Any, ...]:
    total, *saved = ctx.saved_tensors
    grad = torch.zeros_like(total) if grad is None else grad
    how = (ctx.biased or ctx.shifts, ctx.dropout)
    rows, update, sums = _norm_back(grad, None, grad_total, total, *saved, *how)
    of_shift, of_bias = sums[1] if ctx.shifts else None, sums[2] if ctx.biased else None
    of_update = update if ctx.dropout else rows
    return rows, of_update, of_bias, sums[0], of_shift, None, None, None


def _remember_gelu(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, bias, ctx.gated = inputs
    ctx.save_for_backward(x, bias)


def _differentiate_gelu(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, bias = ctx.saved_tensors
    rows, sums = _gelu_back(grad, x, bias, ctx.gated)
    return rows, None if bias is None else sums, None


_norm.register_fake(_normed)
_norm_back.register_fake(_back_of_norm)
_gelu.register_fake(_bent)
_gelu_back.register_fake(_back_of_gelu)
_norm.register_autograd(_differentiate_norm, setup_context=_remember_norm)
_gelu.register_autograd(_differentiate_gelu, setup_context=_remember_gelu)
