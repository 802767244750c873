"""Settings of a comparison that its spec does not hold: what is run, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertsmith.settings import setting


@dataclass(frozen=True)
class ComparisonSettings:
    """Which parts of a comparison are run, and what the report shows."""

    only: Sequence[str] = setting((), "Run only this variant; repeatable.", written=list[str])
    jobs: int = setting(0, "Number of parallel parts; 0: one per core, or one on a GPU.", ge=0)
    merge: Sequence[str | Path] = setting(
        (), "Use the finished parts of this folder; repeatable.", written=list[Path]
    )
    texts: bool = setting(
        True, "Show examples on which variants disagree in the report.", option="--texts/--no-texts"
    )
