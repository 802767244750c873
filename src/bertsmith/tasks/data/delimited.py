"""csv and tsv files → tables, with what parts their cells and how they quote found out."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.tasks.data.files import numbered_lines, read_text
from bertsmith.tasks.data.rows import Row, Table

DELIMITERS = ",;\t|"
LONGEST = 1 << 30  # characters in a cell; the csv module stops at 131,072 unless told

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
