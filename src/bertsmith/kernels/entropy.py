"""Cross entropy over many outputs: one kernel forward, one backward."""

from typing import Any

import torch
from torch import Tensor

from bertsmith.kernels.ragged import is_ampere
from bertsmith.kernels.short import HALVES, TRITON

MANY = 1024  # outputs from which the kernel is worth its launch


def fits_entropy(logits: Tensor) -> bool:
    """Return whether the kernel supports these logits."""
    fits = logits.dtype in HALVES and logits.shape[1] >= MANY
    return TRITON and fits and is_ampere(logits.device)


def summed_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of cross entropies in float32, and the number of correct rows.

    Rows (M, outputs) whose target (M,) is negative do not count.
    """
    if not len(targets):  # a grid must not be empty
        return logits.float().sum(), targets.sum()
    losses, _, hits = _entropy(logits, targets)
    return losses.sum(), hits.sum()


@torch.library.custom_op("bertsmith::entropy", mutates_args=())
def _entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return loss, log-sum-exp and correctness of each row."""
    from bertsmith.kernels import rowwise

    written = _written(logits)
    rowwise.run_entropy(_even(logits), targets.contiguous(), written)
    return written


@torch.library.custom_op("bertsmith::entropy_back", mutates_args=())
def _entropy_back(grad: Tensor, logits: Tensor, targets: Tensor, logs: Tensor) -> Tensor:
    from bertsmith.kernels import rowwise

    out = logits.new_empty(logits.shape)
    rowwise.run_entropy_back(grad.contiguous(), _even(logits), targets.contiguous(), logs, out)
    return out


def _even(logits: Tensor) -> Tensor:
    return logits if logits.stride(1) == 1 else logits.contiguous()


def _written(logits: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    losses, logs = (logits.new_empty(logits.shape[:1], dtype=torch.float32) for _ in range(2))
    return losses, logs, logits.new_empty(logits.shape[:1], dtype=torch.bool)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs, output[1])
    ctx.mark_non_differentiable(*output[1:])


def _differentiate(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor, None]:
    return _entropy_back(grad, *ctx.saved_tensors), None


_entropy.register_fake(_written)
_entropy_back.register_fake(lambda grad, logits, *_: logits.new_empty(logits.shape))
_entropy.register_autograd(_differentiate, setup_context=_remember)
