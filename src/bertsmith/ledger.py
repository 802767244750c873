"""The ledger: nothing is lost in silence, so what was windowed, cut or unknown is counted."""

from __future__ import annotations

from collections import Counter


class Ledger:
    """Counts of what happened to inputs, by a sentence that a person can read."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def note(self, what: str, count: int = 1) -> None:
        """Count something that happened, if it did."""
        if count:
            self.counts[what] += count

    def lines(self) -> list[str]:
        """The whole ledger, one line for each kind of event."""
        return [f"{what}: {count:,}" for what, count in self.counts.items()]
