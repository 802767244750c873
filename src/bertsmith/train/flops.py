"""How much work a token is, and how much of it a device can do."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import torch
from torch import nn

from bertsmith.model import Encoder
from bertsmith.model.attention import Attention


def training_flops(module: nn.Module, length: int) -> float:
    """Floating-point operations for one token of training, forward and backward.

    Six for each weight of a matrix that every token passes, and twelve times width times length
    for attention. Tables are looked up, not multiplied; the vocabulary's output, which only
    masked tokens reach, is left out.
    """
    total = 0.0
    for encoder in (part for part in module.modules() if isinstance(part, Encoder)):
        for number, _ in encoder.plan:
            block = encoder.blocks[number]
            total += 6 * sum(p.numel() for p in block.parameters() if p.ndim > 1)
            attention: Any = [p for p in block.modules() if isinstance(p, Attention)]
            width = sum(part.output.in_features for part in attention)
            total += 12 * width * length
    return total


@cache
def peak_rate(precision: str, device: str = "") -> float:
    """Matrix products of this device, measured: operations a second."""
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    kind: Any = torch.bfloat16 if precision == "bfloat16" else torch.float32
    size = 8192 if chosen.type == "cuda" else 1024
    # Random numbers: with ones a GPU draws less power and is faster than it ever is in training.
    random = torch.Generator().manual_seed(0)
    a = torch.randn(size, size, generator=random).to(chosen, kind)
    best = float("inf")
    for _ in range(5):
        _settle(chosen)
        began = time.perf_counter()
        a @ a
        _settle(chosen)
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
