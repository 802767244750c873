"""Guard against NaN and gradient spikes: such steps are skipped."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median

REMEMBERED = 64  # norms of the last steps that say what is usual
ENOUGH = 16  # of them before a spike can be told
PATIENCE = 3  # bad steps in a row before the run rolls back
ROLLBACKS = 3  # to one checkpoint before the run gives up
FAULTS = (
    "",
    "the loss was not a number",
    "the gradients were not numbers",
    "the gradients' norm was far above the usual",
)


@dataclass
class Guard:
    """Watches the gradient norms of a run; a checkpoint holds its fields."""

    spike: float = math.inf  # skip a step of so many times the usual norm
    recent: list[float] = field(default_factory=list)  # norms of the last good steps
    skipped: int = 0  # bad steps in a row

    def check(self, norm: float, loss: float) -> str:
        """Why this step must be skipped; empty if its gradients may be used."""
        return self.take(norm, self._fault(norm, loss))

    def take(self, norm: float, fault: str) -> str:
        """Take in a step that was judged already."""
        self.skipped = self.skipped + 1 if fault else 0
        if not fault:
            self.recent = [*self.recent, norm][-REMEMBERED:]
        return fault

    def _fault(self, norm: float, loss: float) -> str:
        if not math.isfinite(loss):
            return FAULTS[1]
        if not math.isfinite(norm):
            return FAULTS[2]
        if len(self.recent) >= ENOUGH and norm > self.spike * median(self.recent):
            return f"the gradients' norm was over {self.spike:g} times the usual"
        return ""
