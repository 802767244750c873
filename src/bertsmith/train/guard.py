"""Guard against NaN and gradient spikes: such steps are skipped. The scale of float16 losses."""

import math
from dataclasses import dataclass, field
from statistics import median

REMEMBERED = 64  # number of recent norms that the median is taken of
ENOUGH = 16  # norms needed before a spike can be detected
PATIENCE = 3  # bad steps in a row before the run rolls back
ROLLBACKS = 3  # rollbacks to one checkpoint before the run stops with an error
FAULTS = ["", "the loss was not a number", "the gradients were not numbers"]
FAULTS += ["the gradients' norm was far above the usual"]
OVERFLOW = "the gradients overflowed float16 (the loss scale was halved)"
LARGEST_SCALE, GROWTH = 2.0**24, 2000  # of a loss, and good steps before its scale is doubled


@dataclass
class LossScale:
    """A factor of the loss that keeps the gradients of float16 above its smallest numbers.

    It is halved when they overflow and doubled after many good steps: powers of 2 do not round.
    All ranks see the same sums, so they agree. Its fields are part of checkpoints.
    """

    value: float = 2.0**16
    good: int = 0  # steps since it was changed

    def overflows(self, norm: float, loss: float) -> bool:
        """Record a step; true if a smaller scale can mend its gradients."""
        overflow = math.isfinite(loss) and not math.isfinite(norm) and self.value > 1
        self.good += math.isfinite(norm)
        if overflow or (self.good == GROWTH and self.value < LARGEST_SCALE):
            self.value, self.good = self.value * (0.5 if overflow else 2.0), 0
        return overflow


@dataclass
class Guard:
    """Detects faulty steps by loss and gradient norm; its fields are part of checkpoints."""

    spike: float = math.inf  # skip steps whose norm exceeds this multiple of the median
    recent: list[float] = field(default_factory=list)  # norms of the last good steps
    skipped: int = 0  # bad steps in a row
    fault: str = ""  # of the last step

    def check(self, norm: float, loss: float) -> str:
        """Return the reason to skip a step; empty if its gradients can be used."""
        fault = ""
        if not math.isfinite(loss):
            fault = FAULTS[1]
        elif not math.isfinite(norm):
            fault = FAULTS[2]
        elif len(self.recent) >= ENOUGH and norm > self.spike * median(self.recent):
            fault = f"the gradients' norm was over {self.spike:g} times the usual"
        return self.take(norm, fault)

    def take(self, norm: float, fault: str) -> str:
        """Record a step whose fault is already known."""
        self.skipped, self.fault = self.skipped + 1 if fault else 0, fault
        if not fault:
            self.recent = [*self.recent, norm][-REMEMBERED:]
        return fault
