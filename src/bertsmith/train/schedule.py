"""Learning-rate schedules: from the fraction of a run to a fraction of the peak."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple


class Shape(NamedTuple):
    """What a schedule is told beside its name."""

    warmup: float  # share of the run in which the rate rises
    decay: float  # share of the run in which a "stable" one falls


def linear(done: float, shape: Shape) -> float:
    """Fall in a straight line, as BERT's."""
    return (1 - done) / (1 - shape.warmup)


def cosine(done: float, shape: Shape) -> float:
    """Fall as half a cosine."""
    return (1 + math.cos(math.pi * (done - shape.warmup) / (1 - shape.warmup))) / 2


def stable(done: float, shape: Shape) -> float:
    """Stay, then fall at the end: warm-up, stable, decay. The fall is 1 - sqrt, to nothing."""
    into = (done - (1 - shape.decay)) / shape.decay if shape.decay else 0.0
    return 1 - math.sqrt(into) if into > 0 else 1.0


def constant(done: float, shape: Shape) -> float:
    """Stay."""
    return 1.0


SCHEDULES: dict[str, Callable[[float, Shape], float]] = {
    "linear": linear,
    "cosine": cosine,
    "stable": stable,
    "constant": constant,
}


def rate_at(name: str, done: float, shape: Shape) -> float:
    """The share of the peak rate when this share of the run is done, warm-up included."""
    done = min(max(done, 0.0), 1.0)
    if done < shape.warmup:
        return done / shape.warmup
    return max(0.0, min(1.0, SCHEDULES[name](done, shape)))
