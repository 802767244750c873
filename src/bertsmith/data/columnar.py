"""parquet and xlsx files, and tables of pyarrow and pandas, in portions."""

import datetime
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

from bertsmith.data.delimited import ABSENT, Headings, is_header
from bertsmith.data.streams import Stream, is_regular
from bertsmith.data.tables import Row, Table, check_names, portions, table_portions
from bertsmith.errors import BertsmithError
from bertsmith.files import import_package, one_line, parsing
from bertsmith.ledger import Ledger

WIDEST = 10_000  # columns of a sheet
FEW = 32  # rows of a parquet file that are decoded at once: what is stored once may be long


def parquet_tables(stream: Stream, size: int) -> Iterator[Table]:
    """The portions of a parquet file, with the class names that the `datasets` library stores."""
    path = stream.path
    pyarrow = import_package("pyarrow", f"{path}: reading parquet needs pyarrow")
    parquet = import_package("pyarrow.parquet", f"{path}: reading parquet needs pyarrow")
    try:
        file = parquet.ParquetFile(_source(stream))
        batches = file.iter_batches(batch_size=min(size, FEW))
        yield from arrow_tables(path, file.schema_arrow, batches, file.metadata.num_rows, size)
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError, RecursionError) as error:
        why = one_line(error)[:120]
        raise BertsmithError(f"{path}: not a parquet file that can be read ({why})") from error


def _source(stream: Stream) -> Path | io.BytesIO:
    """The path of a plain file, which can be read at any position; else all of its content."""
    if is_regular(stream.path) and stream.path.stat().st_size:
        return stream.path
    content = stream.content()
    if not content:
        raise BertsmithError(f"{stream.name} is empty")
    return io.BytesIO(content)


def arrow_tables(
    path: Path, schema: Any, batches: Iterator[Any], total: int, size: int
) -> Iterator[Table]:
    """The portions of what pyarrow has read."""
    names = tuple(schema.names)
    check_names(path, names)
    classes = _classes((schema.metadata or {}).get(b"huggingface", b"{}"))
    table = Table(path, names, [], unit="row", classes=classes)
    cells = (row for batch in batches for row in zip(*map(_values, batch.columns), strict=True))
    rows = (Row(number, dict(zip(names, row, strict=True))) for number, row in enumerate(cells, 1))
    yield from table_portions(table, rows, size, lambda last: last.number / max(1, total))


def _values(column: Any) -> list[Any]:
    """The values of a column; times as texts, since Python has no years beyond 9999."""
    import pyarrow

    if pyarrow.types.is_temporal(column.type):
        column = column.cast(pyarrow.string())
    return column.to_pylist()


def _classes(metadata: bytes) -> dict[str, list[str]]:
    try:
        features = dict(json.loads(metadata)["info"]["features"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}
    classes = {}
    for name, feature in features.items():
        inner = feature.get("feature", feature) if isinstance(feature, dict) else feature
        inner = inner[0] if isinstance(inner, list) and inner else inner
        names = inner.get("names") if isinstance(inner, dict) else None
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            classes[name] = names
    return classes


def frame_tables(path: Path, frame: Any, size: int) -> Iterator[Table]:
    """The portions of a pandas data frame."""
    names = tuple(map(str, frame.columns))
    check_names(path, names)
    for start in range(0, max(1, len(frame)), size):
        values = frame.iloc[start : start + size].astype(object).to_numpy().tolist()
        numbered = enumerate((map(_plain, cells) for cells in values), start + 1)
        rows = [Row(number, dict(zip(names, cells, strict=True))) for number, cells in numbered]
        share = min(1.0, (start + size) / max(1, len(frame)))
        yield Table(path, names, rows, unit="row", share=share)


def _plain(value: Any) -> Any:
    """A cell of a data frame as Python's own type; NaN, NA and NaT are no value."""
    if hasattr(value, "tolist"):  # of numpy
        value = value.tolist()
    if isinstance(value, list | dict | str):
        return value
    return None if value != value or type(value).__name__ == "NAType" else value


def sheet_tables(stream: Stream, ledger: Ledger, headings: Headings, size: int) -> Iterator[Table]:
    """The portions of the first sheet of an Excel workbook."""
    path = stream.path
    openpyxl = import_package("openpyxl", f"{path}: reading xlsx needs openpyxl")
    with parsing(path, "an Excel workbook", 120):
        book = openpyxl.load_workbook(_source(stream), read_only=True, data_only=True)
        first, *others = book.worksheets
        for sheet in others:
            ledger.note(f"sheets that are not read: {sheet.title}")
        table, rows = _sheet_table(path, _sheet_rows(first, ledger), headings)
        for portion in portions(rows, size):
            yield replace(table, rows=portion)


def _sheet_rows(sheet: Any, ledger: Ledger) -> Iterator[tuple[int, list[Any]]]:
    for number, cells in enumerate(sheet.iter_rows(values_only=True, max_col=WIDEST), 1):
        values = [_sheet_cell(cell, ledger) for cell in cells]
        while values and values[-1] is None:
            values.pop()
        if values:
            yield number, values


def _sheet_cell(value: Any, ledger: Ledger) -> Any:
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return str(value)
    if value in ABSENT:
        ledger.note('cells such as "NaN" or "NULL", read as no value')
        return None
    return value


def _sheet_table(
    path: Path, rows: Iterator[tuple[int, list[Any]]], headings: Headings
) -> tuple[Table, Iterator[Row]]:
    head = list(islice(rows, 200))
    if not head:
        raise BertsmithError(f"{path} is empty")
    width, header = max(len(cells) for _, cells in head), headings.header
    if header is None:
        texts = [["" if cell is None else str(cell) for cell in cells] for _, cells in head]
        header = is_header(texts[0], texts[1:], headings)
    names = [str(number) for number in range(1, width + 1)]
    if header:
        for place, cell in enumerate(head.pop(0)[1]):
            names[place] = str(cell).strip() if cell is not None else names[place]
        check_names(path, names)

    def listed() -> Iterator[Row]:
        for number, cells in chain(head, rows):
            if len(cells) > width:
                raise BertsmithError(f"{path}, row {number}: more cells than the first rows")
            yield Row(number, dict(zip_longest(names, cells)))

    return Table(path, tuple(names), [], unit="row", header=header), listed()
