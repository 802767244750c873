"""Estimates of the memory for training and inference from the shapes of a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from bertsmith.model import Encoder
from bertsmith.model.attention import Attention


def parameters_of(module: nn.Module) -> int:
    """The number of parameters; shared ones count once."""
    return sum(parameter.numel() for parameter in module.parameters())


def training_memory(
    module: nn.Module, *, micro_tokens: int, masked: float, half: bool = False, shards: int = 1
) -> int:
    """Return the bytes of weights, gradients, Adam's moments and activations for backward.

    `half`: activations are bfloat16. `shards`: number of devices that weights and moments are
    sharded over (FSDP).
    """
    size = 2 if half else 4
    kept = sum(
        size * (12 * width + 3 * inner)
        for encoder in module.modules()
        if isinstance(encoder, Encoder)
        for width, inner in _widths(encoder)
    )
    rows = max(p.shape[0] for p in module.parameters() if p.ndim > 1)
    states = 16 * parameters_of(module) / shards
    return int(states + micro_tokens * kept + masked * micro_tokens * rows * (4 + 2 * size))


def inference_memory(module: nn.Module, *, tokens: int, half: bool = False) -> int:
    """Return the bytes of weights and of the largest activations of one layer."""
    size = 2 if half else 4
    encoders = (part for part in module.modules() if isinstance(part, Encoder))
    widest = max((6 * w + inner for one in encoders for w, inner in _widths(one)), default=0)
    return int(size * (parameters_of(module) + tokens * widest))


def _widths(encoder: Encoder) -> Iterator[tuple[int, int]]:
    """Return the width and the largest number of matrix rows of each layer."""
    for number, _ in encoder.plan:
        block = encoder.blocks[number]
        attention: Any = next(p for p in block.modules() if isinstance(p, Attention))
        inner = max(p.shape[0] for p in block.parameters() if p.ndim > 1)
        yield attention.output.out_features, inner
