"""The ledger: counts of what was windowed, truncated, unknown or skipped."""

from collections import Counter

MOST = 0.5  # the share of unknown tokens above which results mean little


class Ledger:
    """Counts of what happened to inputs, by a sentence that a person can read."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()  # how many there were in all, where that is known

    def note(self, what: str, count: int = 1, total: int = 0) -> None:
        """Count something that happened, if it did; `total` is out of how many."""
        self.totals[what] += total
        if count:
            self.counts[what] += count

    def lines(self) -> list[str]:
        """The whole ledger, one line for each kind of event."""
        return [f"{what}: {self._spoken(what, count)}" for what, count in self.counts.items()]

    def _spoken(self, what: str, count: int) -> str:
        total = self.totals[what]
        if not total:
            return f"{count:,}"
        warning = ": is this the model's language and alphabet?" if count > MOST * total else ""
        return f"{count:,} of {total:,} ({count / total:.0%}){warning}"
