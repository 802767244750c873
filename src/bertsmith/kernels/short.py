"""Attention inside short sequences: one program for each sequence and head.

A sequence of at most 128 tokens fits into the registers of one program as a whole: no loop over
keys, one backward pass that writes all three gradients, and nothing saved for it but the
log-sum-exp of each row. Kernels for any length do the same work in three passes.
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


def fits_short(query: Tensor, most: int) -> bool:
    """Return whether to use the kernel. `most` bounds the lengths of all batches; 0: unknown.

    A launch from Python takes longer than torch's kernel: it is meant for training with CUDA
    graphs.
    """
    fits = 0 < most <= LONGEST and query.shape[-1] in WIDTHS and query.dtype in HALVES
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
    seed = boundaries[:1]  # of dropout; not read without
    if dropout:
        seed = torch.randint(2**31 - 1, (1,), dtype=torch.int32, device=boundaries.device)
    near = -1 if window is None else window
    return _short(list(rows), boundaries, seed, longest, scale, near, causal, dropout)[0]


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

    out, sums = _made(rows)
    how = (longest, scale, window, causal, dropout)
    tiles.launch(tiles.forward_tile, _parts(rows), [out, sums, seed], boundaries, *how)
    return out, sums


@torch.library.custom_op("bertsmith::short_attention_back", mutates_args=())
def _back(
    grad: Tensor,
    rows: list[Tensor],
    sums: Tensor,
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

    found = _joint(grad)
    how = (longest, scale, window, causal, dropout)
    given = [*_parts(rows), _even(grad)]
    tiles.launch(tiles.backward_tile, given, [found, sums, seed], boundaries, *how)
    return found


def _made(rows: Sequence[Tensor], *_: Any) -> tuple[Tensor, Tensor]:
    query = _parts(rows)[0]
    return query.new_empty(query.shape), query.new_empty(query.shape[:2], dtype=torch.float32)


def _joint(grad: Tensor, *_: Any) -> Tensor:
    count, heads, width = grad.shape
    return grad.new_empty(count, 3, heads, width)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    rows, boundaries, seed, *ctx.how = inputs
    ctx.save_for_backward(output[1], boundaries, seed, *rows)
    ctx.mark_non_differentiable(output[1])


def _differentiate(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    sums, boundaries, seed, *rows = ctx.saved_tensors
    found = _back(grad, rows, sums, boundaries, seed, *ctx.how)
    grads = [found] if len(rows) == 1 else list(found.unbind(1))
    return (grads, None, None, *(None for _ in ctx.how))


_short.register_fake(_made)
_back.register_fake(_joint)
_short.register_autograd(_differentiate, setup_context=_remember)


def _parts(rows: Sequence[Tensor]) -> list[Tensor]:
    """Queries, keys and values, each (T, H, d)."""
    return [_even(x) for x in (rows[0].unbind(1) if len(rows) == 1 else rows)]


def _even(x: Tensor) -> Tensor:
    """Return rows that may be strided, but whose heads are contiguous."""
    return x if x.stride()[1:] == (x.shape[-1], 1) else x.contiguous()
