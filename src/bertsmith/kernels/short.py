"""Attention inside short sequences: one program for each sequence and head.

A sequence of at most 128 tokens fits into the registers of one program. So there is no loop over
keys, one kernel computes all three gradients, and only the log-sum-exp of each row is saved for
backward. Kernels for any length need three passes.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from bertsmith.kernels.ragged import is_ampere

LONGEST = 128
TRITON = find_spec("triton") is not None
HALVES = (torch.float16, torch.bfloat16)
WIDTHS = (16, 32, 64, 128)  # supported head widths


def fits_short(query: Tensor, longest: int) -> bool:
    """Return whether to use the kernel. No sequence of any batch exceeds `longest`; 0: unknown.

    A launch from Python takes longer than torch's kernel: it is meant for training with CUDA
    graphs.
    """
    fits = 0 < longest <= LONGEST and query.shape[-1] in WIDTHS and query.dtype in HALVES
    return TRITON and fits and is_ampere(query.device)


def short_attention(
    rows: Sequence[Tensor],
    boundaries: Tensor,
    longest: int,
    scale: float,
    window: int | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Softmax attention inside sequences of at most `longest` tokens → (T, H, d).

    `rows` are queries, keys and values, each (T, H, d), or one (T, 3, H, d). Sequence n is rows
    boundaries[n] to boundaries[n+1]. `window`: number of visible tokens on either side.
    """
    seed = boundaries[:1]  # not read without dropout
    if dropout:
        seed = torch.randint(2**31 - 1, (1,), dtype=torch.int32, device=boundaries.device)
    limit = -1 if window is None else window
    return _short(list(rows), boundaries, seed, longest, scale, limit, causal, dropout)[0]


@torch.library.custom_op("bertsmith::short_attention", mutates_args=())
def _short(
    rows: list[Tensor],
    boundaries: Tensor,
    seed: Tensor,
    longest: int,
    scale: float,
    window: int,
    causal: bool,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Return the outputs (T, H, d), and the log-sum-exps (T, H) for backward."""
    from bertsmith.kernels import tiles

    out, log_sums = _empty_outputs(rows)
    options = (longest, scale, window, causal, dropout)
    tiles.launch(tiles.forward_tile, _split(rows), [out, log_sums, seed], boundaries, *options)
    return out, log_sums


@torch.library.custom_op("bertsmith::short_attention_back", mutates_args=())
def _backward(
    grad: Tensor,
    rows: list[Tensor],
    log_sums: Tensor,
    boundaries: Tensor,
    seed: Tensor,
    longest: int,
    scale: float,
    window: int,
    causal: bool,
    dropout: float,
) -> Tensor:
    """Return the gradients of queries, keys and values, as one (T, 3, H, d)."""
    from bertsmith.kernels import tiles

    joint_grads = _empty_gradients(grad)
    options = (longest, scale, window, causal, dropout)
    inputs = [*_split(rows), _contiguous_heads(grad)]
    tiles.launch(tiles.backward_tile, inputs, [joint_grads, log_sums, seed], boundaries, *options)
    return joint_grads


def _empty_outputs(rows: Sequence[Tensor], *_: Any) -> tuple[Tensor, Tensor]:
    query = _split(rows)[0]
    return query.new_empty(query.shape), query.new_empty(query.shape[:2], dtype=torch.float32)


def _empty_gradients(grad: Tensor, *_: Any) -> Tensor:
    count, heads, width = grad.shape
    return grad.new_empty(count, 3, heads, width)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    rows, boundaries, seed, *ctx.how = inputs
    ctx.save_for_backward(output[1], boundaries, seed, *rows)
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    log_sums, boundaries, seed, *rows = ctx.saved_tensors
    joint_grads = _backward(grad, rows, log_sums, boundaries, seed, *ctx.how)
    grads = [joint_grads] if len(rows) == 1 else list(joint_grads.unbind(1))
    return (grads, None, None, *(None for _ in ctx.how))


_short.register_fake(_empty_outputs)
_backward.register_fake(_empty_gradients)
_short.register_autograd(_gradients, setup_context=_save)


def _split(rows: Sequence[Tensor]) -> list[Tensor]:
    """Queries, keys and values, each (T, H, d)."""
    return [_contiguous_heads(x) for x in (rows[0].unbind(1) if len(rows) == 1 else rows)]


def _contiguous_heads(x: Tensor) -> Tensor:
    """Return rows (T, H, d) that may be strided, with heads that are contiguous."""
    return x if x.stride()[1:] == (x.shape[-1], 1) else x.contiguous()
