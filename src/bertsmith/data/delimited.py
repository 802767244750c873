"""csv and tsv files → tables, with what parts their cells and how they quote found out."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from bertsmith.data.files import numbered_lines, read_text
from bertsmith.data.rows import Row, Table
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger

DELIMITERS = ",;\t|"
LONGEST = 1 << 30  # characters in a cell; the csv module stops at 131,072 unless told

Known = Callable[[str], bool]  # is this a name that columns have?


class Dialect(NamedTuple):
    """What stands between cells, and whether quotes hold one together."""

    delimiter: str
    quoted: bool


def read_delimited(
    path: Path, known: Known, ledger: Ledger, *, tabs: bool = False, skip: bool = False
) -> Table:
    """A csv or tsv file. Without a header that is known its columns are called 1, 2, ...

    `skip` leaves out rows with a wrong number of cells (official files have some), and counts
    them; else the first of them is an error.
    """
    text = read_text(path)
    lines = io.StringIO(text)
    table, rows = open_delimited(path, text, lines, known, ledger, tabs=tabs, skip=skip)
    return replace(table, rows=list(rows))


def open_delimited(
    path: Path,
    head: str,
    lines: Iterable[str],
    known: Known,
    ledger: Ledger,
    *,
    tabs: bool = False,
    skip: bool = False,
) -> tuple[Table, Iterator[Row]]:
    """A table without rows, and its rows as they are read from lines.

    By `head`, the beginning of the text or all of it, is told how cells are parted and quoted.
    """
    delimiter = "\t" if tabs else _delimiter(path, head, known)
    dialect = Dialect(delimiter, delimiter != "\t" or _quotes_tabs(head))
    records = _records(path, lines, dialect)
    first = next(records, None)
    if first is None:
        raise BertsmithError(f"{path} is empty")
    cells = first[1]
    header = any(known(cell) for cell in cells)
    names = [cell.strip() for cell in cells] if header else [str(n + 1) for n in range(len(cells))]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise BertsmithError(f"{path}: two columns are called {min(twice)!r}")
    table = Table(path, tuple(names), [], header=header)
    return table, _rows(table, records if header else chain([first], records), ledger, skip)


def _rows(
    table: Table, records: Iterable[tuple[int, list[str]]], ledger: Ledger, skip: bool
) -> Iterator[Row]:
    for number, cells in records:
        if len(cells) == len(table.names):
            yield Row(number, dict(zip(table.names, cells, strict=True)))
        elif skip:
            ledger.note("rows with a wrong number of columns, left out")
        else:
            what = "the header" if table.header else "the first line"
            raise BertsmithError(
                f"{table.path}, line {number}: {len(cells)} columns where {what} has "
                f"{len(table.names)}"
            )


def _delimiter(path: Path, text: str, known: Known) -> str:
    """What stands between cells: what makes most known names of the first line, or most cells."""
    lines = io.StringIO(text, newline="")

    def promise(delimiter: str) -> tuple[int, int, int]:
        lines.seek(0)
        cells = next(csv.reader(lines, delimiter=delimiter), [])
        return sum(known(cell) for cell in cells), len(cells), -DELIMITERS.index(delimiter)

    with _long_cells(path):
        return max(DELIMITERS, key=promise)


def _records(path: Path, lines: Iterable[str], dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """The cells of each record, with the line on which it begins; an empty line is none."""
    if not dialect.quoted:
        for number, line in enumerate(lines, 1):
            spelled = line.removesuffix("\n").removesuffix("\r")
            if spelled.strip():
                yield number, spelled.split(dialect.delimiter)
        return
    reader = csv.reader(_returned(lines), delimiter=dialect.delimiter, strict=True)
    while True:
        start = reader.line_num + 1
        with _long_cells(path, start):  # for one record: whoever waits for the next sees no change
            cells = next(reader, None)
        if cells is None:
            return
        if cells:
            yield start, cells


def _returned(lines: Iterable[str]) -> Iterator[str]:
    """Lines that end with carriage returns too, as csv has them."""
    for line in lines:
        if "\r" in line.removesuffix("\r\n"):
            yield from io.StringIO(line, newline="")
        else:
            yield line


@contextmanager
def _long_cells(path: Path, line: int = 1) -> Iterator[None]:
    """Let cells be long for a while; a fault of the file is one line."""
    before = csv.field_size_limit(LONGEST)
    try:
        yield
    except csv.Error as error:
        raise BertsmithError(
            f"{path}, line {line}: the quotes of this row do not pair ({error})"
        ) from error
    finally:
        csv.field_size_limit(before)


def _quotes_tabs(text: str) -> bool:
    """Do quotes hold cells of a tsv file together? Most write them as they are (GLUE does).

    They do if every cell that has one is wrapped as csv wraps it, or if only so all rows have the
    same number of cells.
    """
    plain = [line.split("\t") for _, line in numbered_lines(text) if line.strip()]
    spoken = [cell for cells in plain for cell in cells if '"' in cell]
    even = len({len(cells) for cells in plain}) == 1
    if not spoken or (even and not all(map(_wrapped, spoken))):
        return False
    try:
        records = _records(Path(), io.StringIO(text), Dialect("\t", True))
        widths = {len(cells) for _, cells in records}
    except BertsmithError:
        return False
    return len(widths) == 1


def _wrapped(cell: str) -> bool:
    """Is this cell in quotes, and is every quote within it doubled?"""
    inner = cell[1:-1]
    wrapped = len(cell) > 1 and cell[0] == cell[-1] == '"'
    return wrapped and inner.count('"') == 2 * inner.count('""')
