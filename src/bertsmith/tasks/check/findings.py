"""Findings of a check: severity, description, places, count and advice."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bertsmith.data.tables import Where
from bertsmith.errors import BertsmithError
from bertsmith.tasks.dataset import Dataset

SEVERITIES = ("error", "warning", "note")  # ruins training; costs or flatters a score; good to know
SHOWN = 5  # places that a finding keeps

Splits = dict[str, Dataset[Any]]  # train, dev and test, where present


@dataclass(frozen=True)
class Finding:
    """One kind of problem in the data."""

    severity: str
    code: str  # stable, for scripts
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
    """Distribution of input lengths: median, 95th percentile and maximum."""

    unit: str  # words, or the model's tokens with its special ones
    median: int
    most: int  # 95th percentile
    longest: int
    limit: int | None = None  # what the model reads at once
    beyond: int = 0  # inputs that are longer


@dataclass(frozen=True)
class CheckReport:
    """The result of a check of the files of one task."""

    splits: Splits
    counts: dict[str, dict[str, int]]  # split → label → how often
    lengths: dict[str, Lengths]
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        """Findings that would ruin training."""
        return [finding for finding in self.findings if finding.severity == "error"]

    def refuse(self) -> None:
        """Raise the first error, if there is one."""
        if self.errors:
            more = len(self.errors) - 1
            rest = f" (and {more} more: bertsmith check)" if more else ""
            raise BertsmithError(self.errors[0].line() + rest)


def finding(
    severity: str, code: str, split: str, what: str, where: Iterable[Where], advice: str = ""
) -> Iterable[Finding]:
    """Yield a finding with the number of places; nothing if there are none.

    `what` starts with a noun in the plural, "examples without a label": "train: 3 examples ...".
    """
    places = list(where)
    if places:
        noun, _, rest = what.partition(" ")
        text = f"{split}: {len(places):,} {noun[:-1] if len(places) == 1 else noun} {rest}"
        yield Finding(severity, code, text, len(places), tuple(places[:SHOWN]), advice)
