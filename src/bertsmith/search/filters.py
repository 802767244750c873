"""Filters of a search: files by pattern, kinds, and dates."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from bertsmith.errors import BertsmithError, nearest
from bertsmith.search.documents import KINDS

KNOWN = (*dict.fromkeys(KINDS.values()), "added")


def condition(
    files: str | Sequence[str],
    kinds: str | Sequence[str],
    after: str | float | None,
    before: str | float | None,
) -> tuple[str, list[Any]]:
    """Filters as the command line takes them → a condition on files `f` in SQL, and its values."""
    patterns = [files] if isinstance(files, str) else list(files)
    names = [kinds] if isinstance(kinds, str) else list(kinds)
    for kind in names:
        if kind not in KNOWN:
            known = ", ".join(KNOWN)
            raise BertsmithError(f"unknown kind {kind!r}; known: {known}{nearest(kind, KNOWN)}")
    conditions: list[str] = []
    values: list[Any] = []
    if patterns:
        globs = [p if p.startswith("/") else "*" + p.lstrip("*") for p in patterns]
        conditions.append("(" + " OR ".join("f.path GLOB ?" for _ in globs) + ")")
        values += [glob.encode("utf-8", "backslashreplace").decode() for glob in globs]
    if names:
        conditions.append(f"f.kind IN ({', '.join('?' for _ in names)})")
        values += names
    for time, name, operator in ((after, "after", ">="), (before, "before", "<")):
        if time is not None:
            conditions.append(f"f.modified {operator} ?")
            values.append(_time(time, name))
    return " AND ".join(conditions), values


def _time(value: str | float, name: str) -> int:
    """A date or time in nanoseconds; the day of `before` is included."""
    try:
        if not isinstance(value, str):
            return int(value * 1e9)
        moment = datetime.fromisoformat(value.strip())
        if name == "before" and len(value.strip()) <= 10:
            moment += timedelta(days=1)
        return int(moment.timestamp()) * 1_000_000_000
    except (ValueError, OverflowError, TypeError, OSError):
        dates = "2024-05-31 or 2024-05-31T18:00"
        raise BertsmithError(f"{name} is {str(value)[:40]!r}, not a date such as {dates}") from None
