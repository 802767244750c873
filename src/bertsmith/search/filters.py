"""Filters of a search: files by pattern, kinds, and dates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bertsmith.errors import BertsmithError, nearest
from bertsmith.search.documents import KINDS

KNOWN = (*dict.fromkeys(KINDS.values()), "added")


@dataclass(frozen=True)
class Filters:
    """Which files are searched."""

    files: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    after: int | None = None  # nanoseconds since 1970
    before: int | None = None

    @classmethod
    def of(
        cls,
        files: str | Sequence[str],
        kinds: str | Sequence[str],
        after: str | float | None,
        before: str | float | None,
    ) -> Filters:
        """Parse filters as the command line takes them."""
        patterns = (files,) if isinstance(files, str) else tuple(files)
        named = (kinds,) if isinstance(kinds, str) else tuple(kinds)
        for kind in named:
            if kind not in KNOWN:
                raise BertsmithError(
                    f"unknown kind {kind!r}; known: {', '.join(KNOWN)}{nearest(kind, KNOWN)}"
                )
        return cls(patterns, named, _time(after, "after", False), _time(before, "before", True))

    def condition(self) -> tuple[str, list[Any]]:
        """The condition on the table of files `f` in SQL, and its values."""
        parts: list[str] = []
        values: list[Any] = []
        if self.files:
            globs = ["*" + p.lstrip("*") if not p.startswith("/") else p for p in self.files]
            parts.append("(" + " OR ".join("f.path GLOB ?" for _ in globs) + ")")
            values += [glob.encode("utf-8", "backslashreplace").decode() for glob in globs]
        if self.kinds:
            parts.append(f"f.kind IN ({', '.join('?' for _ in self.kinds)})")
            values += self.kinds
        if self.after is not None:
            parts.append("f.modified >= ?")
            values.append(self.after)
        if self.before is not None:
            parts.append("f.modified < ?")
            values.append(self.before)
        return " AND ".join(parts), values


def _time(value: str | float | None, name: str, end: bool) -> int | None:
    """A date or time in nanoseconds; the day that is named `before` is included."""
    if value is None:
        return None
    try:
        if not isinstance(value, str):
            return int(value * 1e9)
        moment = datetime.fromisoformat(value.strip())
        if end and len(value.strip()) <= 10:
            moment += timedelta(days=1)
        return int(moment.timestamp()) * 1_000_000_000
    except (ValueError, OverflowError, TypeError, OSError):
        raise BertsmithError(
            f"{name} is {str(value)[:40]!r}, not a date such as 2024-05-31 or 2024-05-31T18:00"
        ) from None
