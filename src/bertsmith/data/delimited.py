"""csv and tsv files: separators, quotes and header rows are detected."""

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from bertsmith.data.columns import plain
from bertsmith.data.streams import Stream
from bertsmith.data.tables import Row, Table, check_names, table_portions
from bertsmith.errors import BertsmithError
from bertsmith.files import LONGEST_LINE
from bertsmith.ledger import Ledger
from bertsmith.numbers import counted, parse_number

DELIMITERS = ",;\t|"
# Cells that mean "no value", of those that pandas and Excel write.
ABSENT = {"NaN", "nan", "NAN", "NULL", "null", "<NA>", "#N/A", "#NA", "N/A", "n/a"}
EXCEL = re.compile(r"sep=(.)[\r\n]*")  # the first line that Excel reads the separator from
SENTENCE = re.compile(r"[.!?…。？！]['\"»”)]?$")
LONGEST_NAME = 60  # characters that the name of a column has at most


class Headings(NamedTuple):
    """Names of columns: which are known, which of them are also values, and which were given."""

    known: Collection[str] = frozenset()
    values: Collection[str] = frozenset()  # a known name that is also a value makes no header alone
    given: Collection[str] = frozenset()
    header: bool | None = None  # whether the first row has names; None: that is detected


def delimited_tables(
    stream: Stream, ledger: Ledger, headings: Headings, tabs: bool, skip: bool, size: int
) -> Iterator[Table]:
    """The portions of a csv or tsv file; `skip` leaves out rows of another width (counted)."""
    head, lines = stream.head(), iter(stream)
    first_number = 1
    excel = EXCEL.fullmatch(head.split("\n", 1)[0])
    if excel:
        next(lines)
        head, first_number = head.partition("\n")[2], 2
    delimiter = excel[1] if excel else "\t" if tabs else _delimiter(stream.path, head, headings)
    quoted = delimiter != "\t" or _quotes_tabs(head)
    records = _records(stream.path, lines, delimiter, quoted, first_number)
    first = next(records, None)
    if first is None:
        raise BertsmithError(f"{stream.name} is empty")
    header = headings.header
    if header is None:
        below = _records(stream.path, io.StringIO(head), delimiter, quoted)
        header = is_header(first[1], [cells for _, cells in islice(below, 1, 200)], headings)
    cells = [cell.strip() if header else "" for cell in first[1]]
    while header and len(cells) > 1 and not cells[-1]:
        cells.pop()
    names = tuple(name or str(number) for number, name in enumerate(cells, 1))
    check_names(stream.path, names)
    table = Table(stream.path, names, [], header=header, delimiter=delimiter)
    rows = _rows(table, records if header else chain([first], records), ledger, skip)
    yield from table_portions(table, rows, size, lambda _: stream.share)


def _rows(
    table: Table, records: Iterable[tuple[int, list[str]]], ledger: Ledger, skip: bool
) -> Iterator[Row]:
    width = len(table.names)
    for number, cells in records:
        if len(cells) > width and not any(map(str.strip, cells[width:])):
            ledger.note("rows with empty cells after the last column")
            cells = cells[:width]
        if len(cells) == width:
            values: list[str | None] = [*cells]
            if not skip and not ABSENT.isdisjoint(cells):
                values = [None if cell in ABSENT else cell for cell in cells]
                ledger.note('cells such as "NaN" or "NULL", read as no value', values.count(None))
            yield Row(number, dict(zip(table.names, values, strict=True)))
        elif skip:
            ledger.note("rows with a wrong number of columns, left out")
        else:
            what = "the header" if table.header else "the first line"
            advice = "; is a separator in a cell without quotes?" if len(cells) > width else ""
            raise BertsmithError(
                f"{table.path}, line {number}: {counted(len(cells), 'column')} where {what} "
                f"has {width}{advice}"
            )


def is_header(cells: list[str], below: list[list[str]], headings: Headings) -> bool:
    """Is the first row of a file the names of its columns?

    It is if every cell could be a name, none of them stands in its own column again, and either
    some are names that columns often have (or that the caller passed), or the rows below are of
    another kind: numbers, much longer texts, or a few values that repeat.
    """
    filled = [(place, cell.strip()) for place, cell in enumerate(cells) if cell.strip()]
    if any(plain(cell) in headings.given for _, cell in filled):
        return True
    if not filled or not all(_could_be_name(cell) for _, cell in filled):
        return False
    columns = {
        place: [row[place].strip() for row in below if place < len(row)] for place, _ in filled
    }
    if any(cell in columns[place] for place, cell in filled):
        return False
    known = {plain(cell) for _, cell in filled if plain(cell) in headings.known}
    if known.difference(headings.values) or len(known) > 1:
        return True
    one_word = all(len(cell.split()) <= 2 for _, cell in filled)
    return one_word and any(_unlike(cell, columns[place]) for place, cell in filled)


def _could_be_name(cell: str) -> bool:
    short = len(cell) <= LONGEST_NAME and len(cell.split()) <= 5
    return short and parse_number(cell) is None and not SENTENCE.search(cell)


def _unlike(name: str, values: list[str]) -> bool:
    """Are the values of a column of another kind than the cell above them?"""
    filled = [value for value in values if value]
    if len(filled) < 2:
        return False
    if all(parse_number(value) is not None for value in filled):
        return True
    repeated = len(filled) >= 6 and 2 * len(set(filled)) <= len(filled)
    longer = sum(map(len, filled)) / len(filled) > 4 * len(name) and " " not in name
    return repeated or longer


def _delimiter(path: Path, text: str, headings: Headings) -> str:
    """The delimiter that yields the most known names in the first line, or the most cells."""
    lines = io.StringIO(text, newline="")
    known = {*headings.known, *headings.given}

    def fit(delimiter: str) -> tuple[int, int, int]:
        lines.seek(0)
        cells = next(csv.reader(lines, delimiter=delimiter), [])
        names = sum(plain(cell) in known for cell in cells if len(cell) <= LONGEST_NAME)
        return names, len(cells), -DELIMITERS.index(delimiter)

    with _long_cells(path):
        return max(DELIMITERS, key=fit)


def _records(
    path: Path, lines: Iterable[str], delimiter: str, quoted: bool, first: int = 1
) -> Iterator[tuple[int, list[str]]]:
    """The cells of each record, with the line on which it begins; an empty line is none."""
    if not quoted:
        for number, line in enumerate(lines, first):
            spelled = line.removesuffix("\n").removesuffix("\r")
            if spelled.strip():
                yield number, spelled.split(delimiter)
        return
    reader = csv.reader(_returned(lines), delimiter=delimiter, strict=True)
    while True:
        start = reader.line_num + first
        with _long_cells(path, start):  # the limit is restored before the generator yields
            cells = next(reader, None)
        if cells is None:
            return
        if cells:
            yield start, cells


def _returned(lines: Iterable[str]) -> Iterator[str]:
    """Lines, split at single carriage returns too, as csv does."""
    for line in lines:
        if "\r" in line.removesuffix("\r\n"):
            yield from io.StringIO(line, newline="")
        else:
            yield line


@contextmanager
def _long_cells(path: Path, line: int = 1) -> Iterator[None]:
    """Let cells be long for a while; a fault of the file is one line."""
    before = csv.field_size_limit(LONGEST_LINE)
    try:
        yield
    except csv.Error as error:
        where = f"{path}, line {line}"
        raise BertsmithError(f"{where}: unbalanced quotes in this row ({error})") from error
    finally:
        csv.field_size_limit(before)


def _quotes_tabs(text: str) -> bool:
    """Are cells of a tsv file quoted? In most files (GLUE's), quotes are plain text.

    They are if every cell with a quote is wrapped as csv wraps it, or if only quoting gives all
    rows the same number of cells.
    """
    if '"' not in text:
        return False
    rows = [line.split("\t") for line in text.split("\n") if line.strip()]
    quotes = [cell.removesuffix("\r") for cells in rows for cell in cells if '"' in cell]
    even = len({len(cells) for cells in rows}) == 1
    if even and not all(map(_wrapped, quotes)):
        return False
    try:
        records = _records(Path(), io.StringIO(text), "\t", True)
        return len({len(cells) for _, cells in records}) == 1
    except BertsmithError:
        return False


def _wrapped(cell: str) -> bool:
    within = cell[1:-1]
    wrapped = len(cell) > 1 and cell[0] == cell[-1] == '"'
    return wrapped and within.count('"') == 2 * within.count('""')
