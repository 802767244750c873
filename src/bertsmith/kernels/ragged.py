"""Attention inside sequences of any length: torch's flash kernel, and cuDNN's for full rows."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

SHORTEST = 256  # shorter sequences are faster with other kernels


def is_ampere(device: torch.device) -> bool:
    """Return whether this is a GPU of Ampere or later, as flash attention and Triton need.

    Earlier ones (T4, V100) also have no bfloat16 units.
    """
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def is_hopper(device: torch.device) -> bool:
    """Return whether this is a GPU of Hopper or later, where cuDNN's attention is the fastest."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def fits_ragged(query: Tensor) -> bool:
    """Return whether torch's kernel supports these queries."""
    fits = query.shape[-1] % 8 == 0 and query.shape[-1] <= 256
    return fits and query.dtype in (torch.float16, torch.bfloat16) and is_ampere(query.device)


def fits_full(query: Tensor, most: int, window: int | None) -> bool:
    """Return whether cuDNN is the fastest for batches whose sequences all have `most` tokens."""
    fits = fits_ragged(query) and query.shape[-1] <= 128 and most >= SHORTEST
    sees_all = window is None or most <= window + 1
    return fits and sees_all and is_hopper(query.device)


def full_attention(
    rows: Sequence[Tensor],
    boundaries: Tensor,
    longest: int,
    scale: float,
    window: int | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """As `ragged_attention`, if all sequences have `longest` tokens and see all of them."""
    if window is not None and longest > window + 1:
        raise ValueError("this kernel has no windows")
    grids = (x.unflatten(0, (-1, longest)).transpose(1, 2) for x in rows)  # (N, H, n, d)
    found: Tensor = torch.ops.aten._scaled_dot_product_cudnn_attention(
        *grids, None, True, dropout, causal, False, scale=scale
    )[0]
    # As they were: compiled, `longest` may be a symbol, and the number of tokens must not be one.
    return found.transpose(1, 2).reshape(rows[0].shape)


def ragged_attention(
    rows: Sequence[Tensor],
    boundaries: Tensor,
    longest: int,
    scale: float,
    window: int | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """As `short_attention`, for any length (CUDA, half precision)."""
    options: dict[str, Any] = {"scale": scale}
    if window is not None and longest > window + 1:
        options |= {"window_size_left": window, "window_size_right": 0 if causal else window}
    # The operator below torch.nn.attention.varlen, which has no dropout.
    ends = (boundaries, boundaries, longest, longest)
    found: Tensor = torch.ops.aten._flash_attention_forward(
        *rows, *ends, dropout, causal, False, **options
    )[0]
    return found
