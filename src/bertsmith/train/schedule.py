"""Learning-rate schedules: from the fraction of a run to a fraction of the peak.

`warmup` and `decay` are fractions of the run; "stable" falls in the second of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable


def linear(done: float, warmup: float, decay: float) -> float:
    """Linear decay to 0, as in BERT."""
    return (1 - done) / (1 - warmup)


def cosine(done: float, warmup: float, decay: float) -> float:
    """Cosine decay to 0."""
    return (1 + math.cos(math.pi * (done - warmup) / (1 - warmup))) / 2


def stable(done: float, warmup: float, decay: float) -> float:
    """Warm-up, stable, decay (WSD): constant, then 1 - sqrt decay to 0 at the end."""
    into = (done - (1 - decay)) / decay if decay else 0.0
    return 1 - math.sqrt(into) if into > 0 else 1.0


def constant(done: float, warmup: float, decay: float) -> float:
    """Constant after warm-up."""
    return 1.0


SCHEDULES: dict[str, Callable[[float, float, float], float]] = {
    "linear": linear,
    "cosine": cosine,
    "stable": stable,
    "constant": constant,
}


def rate_at(name: str, done: float, warmup: float, decay: float) -> float:
    """Return the learning rate, as a fraction of its peak, at a fraction of the run."""
    done = min(max(done, 0.0), 1.0)
    if done < warmup:
        return done / warmup
    return max(0.0, min(1.0, SCHEDULES[name](done, warmup, decay)))
