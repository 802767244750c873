"""Tables: rows that know their line, and cells as what they should be."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from bertsmith.data.examples import Where
from bertsmith.errors import BertsmithError


class Row(NamedTuple):
    """One row: where it begins, and its cells by the name of their column."""

    number: int
    cells: dict[str, Any]


@dataclass(frozen=True)
class Table:
    """The rows of a file."""

    path: Path
    names: tuple[str, ...]  # of the columns; "1", "2", ... where the file has no header
    rows: list[Row]
    unit: str = "line"
    header: bool = True
    classes: dict[str, list[str]] = field(default_factory=dict)  # columns of numbers → their names

    def where(self, row: Row) -> Where:
        """Where a row stands."""
        return Where(str(self.path), row.number, self.unit)


def text_cell(value: Any, where: Where, column: str) -> str:
    """A cell as text; an absent one is empty."""
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return str(value)
    if not isinstance(value, str):
        kind = type(value).__name__
        raise BertsmithError(f"{where}: {column!r} is a {kind}, not text")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise BertsmithError(
                f"{where}: {column!r} has half of a surrogate pair, which is no character"
            ) from None
    return value


def list_cell(value: Any, where: Where, column: str) -> list[Any]:
    """A cell as a list; in csv files lists are JSON or Python, or words between spaces."""
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, str):
        stripped = value.strip()
        if stripped.startswith("[") and stripped.endswith("]"):
            return _written(stripped, where, column)
        return stripped.split()
    raise BertsmithError(f"{where}: {column!r} is no list")


def _written(text: str, where: Where, column: str) -> list[Any]:
    """A list as JSON, Python or numpy wrote it into a cell."""
    from ast import literal_eval

    try:
        return list(json.loads(text))
    except (ValueError, RecursionError):
        pass
    # numpy leaves out commas, and Python would read 'a' 'b' as one word.
    between = r"(?<=['\"])\s+(?=['\"])" if re.search("['\"]", text) else r"(?<=\d)\s+(?=\d)"
    spaced = text if "," in text else re.sub(between, ", ", text)
    try:
        return list(literal_eval(spaced))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise BertsmithError(f"{where}: {column!r} is not a list that can be read") from None


def sample(table: Table, name: str, most: int = 200) -> list[Any]:
    """The first values of a column that are there."""
    values = (row.cells.get(name) for row in table.rows)
    return list(islice((value for value in values if value not in (None, "")), most))


def shown(names: Collection[str]) -> str:
    """Names of columns, for a message."""
    listed = list(names)
    return ", ".join(listed[:20]) + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")
