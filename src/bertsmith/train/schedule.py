"""Learning-rate schedules: from the fraction of a run to a fraction of the peak."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple


class Shape(NamedTuple):
    """The parameters of a schedule."""

    warmup: float  # fraction of the run that is warm-up
    decay: float  # fraction of the run in which "stable" decays


def linear(done: float, shape: Shape) -> float:
    """Linear decay to 0, as in BERT."""
    return (1 - done) / (1 - shape.warmup)


def cosine(done: float, shape: Shape) -> float:
    """Cosine decay to 0."""
    return (1 + math.cos(math.pi * (done - shape.warmup) / (1 - shape.warmup))) / 2


def stable(done: float, shape: Shape) -> float:
    """Warm-up, stable, decay (WSD): constant, then 1 - sqrt decay to 0 at the end."""
    into = (done - (1 - shape.decay)) / shape.decay if shape.decay else 0.0
    return 1 - math.sqrt(into) if into > 0 else 1.0


def constant(done: float, shape: Shape) -> float:
    """Constant after warm-up."""
    return 1.0


SCHEDULES: dict[str, Callable[[float, Shape], float]] = {
    "linear": linear,
    "cosine": cosine,
    "stable": stable,
    "constant": constant,
}


def rate_at(name: str, done: float, shape: Shape) -> float:
    """Return the learning rate, as a fraction of its peak, at a fraction of the run."""
    done = min(max(done, 0.0), 1.0)
    if done < shape.warmup:
        return done / shape.warmup
    return max(0.0, min(1.0, SCHEDULES[name](done, shape)))
