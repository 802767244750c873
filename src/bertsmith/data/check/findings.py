"""What a check finds: how bad, what, where, how often, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bertsmith.data import Dataset, Where
from bertsmith.errors import BertsmithError

SEVERITIES = ("error", "warning", "note")  # ruins training; costs or flatters a score; good to know
SHOWN = 5  # places that a finding keeps

Splits = dict[str, Dataset[Any]]  # train, dev and test, those that there are


@dataclass(frozen=True)
class Finding:
    """One kind of thing that was found."""

    severity: str
    code: str  # the same for ever, for machines
    what: str
    count: int
    where: tuple[Where, ...] = ()  # the first few
    advice: str = ""

    def line(self) -> str:
        """The finding as one line."""
        place = f"{self.where[0]}: " if self.where else ""
        return f"{place}{self.what}" + (f"; {self.advice}" if self.advice else "")


@dataclass(frozen=True)
class Lengths:
    """How long inputs are: of what, and the middle, the long ones and the longest."""

    unit: str  # words, or the model's tokens with its special ones
    median: int
    most: int  # 95 in 100 are at most so long
    longest: int
    limit: int | None = None  # what the model reads at once
    beyond: int = 0  # inputs that are longer


@dataclass(frozen=True)
class Report:
    """All that was seen in the files of one task."""

    splits: Splits
    counts: dict[str, dict[str, int]]  # split → label → how often
    lengths: dict[str, Lengths]
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        """What would ruin training."""
        return [finding for finding in self.findings if finding.severity == "error"]

    def refuse(self) -> None:
        """Raise if something would ruin training: the first such thing, as one line."""
        if self.errors:
            more = len(self.errors) - 1
            rest = f" (and {more} more: bertsmith check)" if more else ""
            raise BertsmithError(self.errors[0].line() + rest)


def found(
    severity: str, code: str, what: str, where: Iterable[Where], advice: str = ""
) -> Iterable[Finding]:
    """A finding for these places, which are counted; none where there are none."""
    places = list(where)
    if places:
        text = f"{what}: {len(places):,}"
        yield Finding(severity, code, text, len(places), tuple(places[:SHOWN]), advice)
