"""Tables: csv, tsv, jsonl, json and parquet files as rows that know their line."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.tasks.data.examples import Where
from bertsmith.tasks.data.files import numbered_lines, read_bytes, read_text

DELIMITERS = ",;\t|"
LONGEST = 1 << 30  # characters in a cell; the csv module stops at 131,072 unless told


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


Known = Callable[[str], bool]  # is this a name that columns have?


def read_delimited(
    path: Path, known: Known, ledger: Ledger, *, tabs: bool = False, skip: bool = False
) -> Table:
    """A csv or tsv file. Without a header that is known its columns are called 1, 2, ...

    `skip` leaves out rows with a wrong number of cells (official files have some), and counts
    them; else the first of them is an error.
    """
    text = read_text(path)
    delimiter = "\t" if tabs else _delimiter(path, text, known)
    records = _tabbed(text) if delimiter == "\t" else _quoted(path, text, delimiter)
    if not records:
        raise BertsmithError(f"{path} is empty")
    header = any(known(cell) for cell in records[0][1])
    first = records[0][1]
    names = [cell.strip() for cell in first] if header else [str(n + 1) for n in range(len(first))]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise BertsmithError(f"{path}: two columns are called {min(twice)!r}")
    rows = []
    for number, cells in records[header:]:
        if len(cells) == len(names):
            rows.append(Row(number, dict(zip(names, cells, strict=True))))
        elif skip:
            ledger.note("rows with a wrong number of columns, left out")
        else:
            what = "the header" if header else "the first line"
            raise BertsmithError(
                f"{path}, line {number}: {len(cells)} columns where {what} has {len(names)}"
            )
    return Table(path, tuple(names), rows, header=header)


def _delimiter(path: Path, text: str, known: Known) -> str:
    """What stands between cells: what makes most known names of the first line, or most cells."""
    lines = io.StringIO(text, newline="")

    def promise(delimiter: str) -> tuple[int, int, int]:
        lines.seek(0)
        cells = next(csv.reader(lines, delimiter=delimiter), [])
        return sum(known(cell) for cell in cells), len(cells), -DELIMITERS.index(delimiter)

    with _long_cells(path):
        return max(DELIMITERS, key=promise)


def _quoted(path: Path, text: str, delimiter: str) -> list[tuple[int, list[str]]]:
    """Records of a csv file, with the line on which each begins."""
    records = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    start = 1
    with _long_cells(path, lambda: start):
        for cells in reader:
            if cells:  # an empty line is none
                records.append((start, cells))
            start = reader.line_num + 1
    return records


@contextmanager
def _long_cells(path: Path, line: Callable[[], int] = lambda: 1) -> Iterator[None]:
    """Let cells be long for a while; a fault of the file is one line."""
    before = csv.field_size_limit(LONGEST)
    try:
        yield
    except csv.Error as error:
        raise BertsmithError(
            f"{path}, line {line()}: the quotes of this row do not pair ({error})"
        ) from error
    finally:
        csv.field_size_limit(before)


def _tabbed(text: str) -> list[tuple[int, list[str]]]:
    """Records of a tsv file. Most write quotes as they are (GLUE does), some as csv does.

    Quotes are csv's if every cell that has one is wrapped as csv wraps it, or if only so all rows
    have the same number of cells.
    """
    plain = [(number, line.split("\t")) for number, line in numbered_lines(text) if line.strip()]
    spoken = [cell for _, cells in plain for cell in cells if '"' in cell]
    even = len({len(cells) for _, cells in plain}) == 1
    if not spoken or (even and not all(map(_wrapped, spoken))):
        return plain
    try:
        quoted = _quoted(Path(), text, "\t")
    except BertsmithError:
        return plain
    return quoted if len({len(cells) for _, cells in quoted}) == 1 else plain


def _wrapped(cell: str) -> bool:
    """Is this cell in quotes, and is every quote within it doubled?"""
    inner = cell[1:-1]
    wrapped = len(cell) > 1 and cell[0] == cell[-1] == '"'
    return wrapped and inner.count('"') == 2 * inner.count('""')


# ------------------------------------------------------------------ JSON


def read_json_lines(path: Path) -> Table:
    """A file with a JSON object a line."""
    rows = []
    for number, line in numbered_lines(read_text(path)):
        if line.strip():
            rows.append(Row(number, _object(line, Where(str(path), number))))
    return Table(path, _names(row.cells for row in rows), rows)


def read_json(path: Path) -> Any:
    """A JSON document; a file with an object a line is a list of rows too."""
    text = read_text(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        first = text.lstrip().partition("\n")[0]
        if error.msg == "Extra data" and first.startswith("{") and first.rstrip().endswith("}"):
            return read_json_lines(path)
        raise BertsmithError(f"{path}, line {error.lineno}: not JSON ({error.msg})") from None
    except RecursionError:
        raise BertsmithError(f"{path}: JSON that is nested too deeply") from None


def table_of(path: Path, content: Any) -> Table:
    """The rows of a JSON document: a list of objects, or an object that holds one as `data`."""
    if isinstance(content, Table):
        return content
    listed = content.get("data") if isinstance(content, dict) else content
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise BertsmithError(
            f"{path}: neither SQuAD's layout nor a list of objects (nor an object a line)"
        )
    rows = [Row(number, one) for number, one in enumerate(listed, 1)]
    return Table(path, _names(listed), rows, unit="row")


def _object(line: str, where: Where) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", "nested too deeply")
        raise BertsmithError(f"{where}: not JSON ({reason})") from None
    if not isinstance(value, dict):
        raise BertsmithError(f"{where}: not a JSON object")
    return value


def _names(rows: Any) -> tuple[str, ...]:
    """Every key of the rows, in the order in which they first come."""
    return tuple(dict.fromkeys(str(key) for row in rows for key in row))


# ------------------------------------------------------------------ parquet


def read_parquet(path: Path) -> Table:
    """A parquet file, with the class names that the `datasets` library writes into it."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise BertsmithError(
            f"{path}: reading parquet needs pyarrow: pip install pyarrow"
        ) from error
    content = read_bytes(path)
    try:
        table = parquet.read_table(pyarrow.BufferReader(content))
        listed = table.to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        why = " ".join(str(error).split())[:120]
        raise BertsmithError(f"{path}: not a parquet file that can be read ({why})") from error
    rows = [Row(number, row) for number, row in enumerate(listed, 1)]
    classes = _classes((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    return Table(path, tuple(table.column_names), rows, unit="row", classes=classes)


def _classes(metadata: bytes) -> dict[str, list[str]]:
    """The class names of columns, from the `datasets` library's description of them."""
    try:
        features = json.loads(metadata)["info"]["features"]
        columns = dict(features).items()
    except (ValueError, LookupError, TypeError):
        return {}
    found = {}
    for name, feature in columns:
        inner = feature.get("feature", feature) if isinstance(feature, dict) else feature
        inner = inner[0] if isinstance(inner, list) and inner else inner
        names = inner.get("names") if isinstance(inner, dict) else None
        if isinstance(names, list) and all(isinstance(one, str) for one in names):
            found[name] = names
    return found


# ------------------------------------------------------------------ cells


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
    spaced = re.sub(r"(?<=['\"\w])\s+(?=['\"\w])", ", ", text) if "," not in text else text
    try:
        return list(literal_eval(spaced))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise BertsmithError(f"{where}: {column!r} is not a list that can be read") from None


def sample(table: Table, name: str, most: int = 200) -> list[Any]:
    """The first values of a column that are there."""
    values = (row.cells.get(name) for row in table.rows)
    return list(islice((value for value in values if value not in (None, "")), most))


def shown(names: Collection[str] | Sequence[str]) -> str:
    """Names of columns, for a message."""
    listed = list(names)
    return ", ".join(listed[:20]) + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")
