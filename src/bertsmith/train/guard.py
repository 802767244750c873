"""A NaN or a gradient spike never reaches the weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

REMEMBERED = 64  # norms of the last steps that say what is usual
ENOUGH = 16  # of them before a spike can be told
PATIENCE = 3  # bad steps in a row before the run rolls back
ROLLBACKS = 3  # to one checkpoint before the run gives up


def fault(norm: float, loss: float, recent: Sequence[float], spike: float) -> str:
    """What is wrong with a step's gradients; nothing if they may be used."""
    if not math.isfinite(loss):
        return "the loss was not a number"
    if not math.isfinite(norm):
        return "the gradients were not numbers"
    if len(recent) >= ENOUGH and norm > spike * median(recent):
        return f"the gradients' norm was over {spike:g} times the usual"
    return ""
