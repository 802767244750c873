"""Filters of a search: files by pattern, kinds, and dates."""

from datetime import datetime, timedelta
from typing import Any

from bertsmith.errors import BertsmithError, nearest
from bertsmith.search.documents import KINDS
from bertsmith.settings.search import SearchSettings

KNOWN = (*dict.fromkeys(KINDS.values()), "added")


def condition(settings: SearchSettings) -> tuple[str, list[Any]]:
    """The filters of a search → a condition on files `f` in SQL, and its values."""
    both = (settings.files, settings.kinds)
    patterns, names = ([one] if isinstance(one, str) else list(one) for one in both)
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
    for name, operator in (("after", ">="), ("before", "<")):
        if (time := getattr(settings, name)) is not None:
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
