"""Results beside the rows they belong to: jsonl, csv, tsv, parquet, or records of a tool."""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from bertsmith.data.streams import STANDARD_INPUT
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import ESCAPED, atomic, finite, import_package, one_line
from bertsmith.ledger import Ledger

TABLES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}
TABLES |= {".parquet": "parquet", ".pq": "parquet"}
FORMATS = ("jsonl", "csv", "tsv", "parquet")
SUFFIX = "_predicted"  # of a result's column whose name the source has already
# Other formats by name: a row with its result → what is written as JSON.
Records = Mapping[str, Callable[[Mapping[str, Any]], Any]]
NONE: Records = MappingProxyType({})


@contextmanager
def open_predictions(
    out: Path | None,
    format: str | None = None,
    ledger: Ledger | None = None,
    data: Any = None,
    records: Records = NONE,
) -> Iterator["_JsonLines | _Delimited | _Parquet"]:
    """A file that appears when it is complete, or standard output; csv as the source `data`."""
    kind = format_of(out, format, records)
    if out == STANDARD_INPUT:
        out = None
    if kind == "parquet":
        if out is None:
            file = setting_name("out", "FILE")
            raise BertsmithError(f"parquet cannot be written to standard output: name {file}")
        # Closed after an error too: pyarrow would write to the closed stream later.
        with atomic(out) as stream, closing(_Parquet(out, stream)) as parquet:
            yield parquet
        return
    with nullcontext(sys.stdout) if out is None else atomic(out, "w") as lines:
        if kind in ("csv", "tsv"):
            yield _Delimited(lines, None if kind == "csv" else "\t", ledger or Ledger(), data)
        else:
            yield _JsonLines(lines, records.get(kind, dict))


def format_of(out: Path | None, format: str | None, records: Records = NONE) -> str:
    """The format that was named, or that the ending of a file names."""
    if format is not None:
        if format not in FORMATS and format not in records:
            known = ", ".join((*FORMATS, *records))
            raise BertsmithError(f"unknown format {format!r}; known: {known}")
        return format
    if out is None or out == STANDARD_INPUT or str(out).startswith("/dev/"):
        return "jsonl"
    if out.suffix.lower() not in TABLES:
        known = ", ".join(TABLES)
        other = setting_name("format")
        raise BertsmithError(f"{out}: the name must end with {known}, or name it with {other}")
    return TABLES[out.suffix.lower()]


def merged(
    row: Mapping[str, Any], names: Sequence[str], result: Mapping[str, Any]
) -> dict[str, Any]:
    """A row with its result; a name that the source has gets the suffix _predicted."""
    joined = dict(row)
    taken = {*row, *names}
    for name, value in result.items():
        while name in taken:
            name += SUFFIX
        taken.add(name)
        joined[name] = value
    return joined


def as_json(value: Any) -> str:
    """JSON on one line; numbers that are not finite are null, half characters are escaped."""
    return (
        json.dumps(finite(value), ensure_ascii=False, default=str).encode(errors=ESCAPED).decode()
    )


class _JsonLines:
    def __init__(self, stream: IO[str], record: Callable[[Mapping[str, Any]], Any]) -> None:
        self.stream, self.record = stream, record

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            self.stream.write(as_json(self.record(row)) + "\n")
        self.stream.flush()


class _Delimited:
    """csv or tsv; lists and objects are JSON in a cell."""

    def __init__(self, stream: IO[str], delimiter: str | None, ledger: Ledger, data: Any) -> None:
        self.stream, self.delimiter, self.ledger, self.data = stream, delimiter, ledger, data
        self.names: list[str] = []

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if not self.names:  # the source is being read, and its delimiter known
            mark: str = self.delimiter or getattr(self.data, "delimiter", None) or ","
            self.writer = csv.writer(self.stream, delimiter=mark, lineterminator="\n")
            self.names = list(dict.fromkeys(name for row in rows for name in row))
            self.writer.writerow(map(self._cell, self.names))
        known = set(self.names)
        for row in rows:
            late = sum(name not in known for name in row)
            self.ledger.note("cells of columns that came after the header, not written", late)
            self.writer.writerow([self._cell(row.get(name)) for name in self.names])
        self.stream.flush()

    def _cell(self, value: Any) -> str:
        if value is None:
            return ""
        text = value if isinstance(value, str) else as_json(value)
        return text.encode("utf-8", "replace").decode()


class _Parquet:
    """The first rows decide the types: lists and objects are JSON, arrays lists of float32."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        from numpy import ndarray

        self.path, self.stream, self.array = path, stream, ndarray
        self.arrow = import_package("pyarrow", f"{path}: writing parquet needs pyarrow")
        self.file: Any = None

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        plain = [{name: self._cell(value) for name, value in row.items()} for row in rows]
        try:
            if self.file is None:
                from pyarrow import parquet

                names = dict.fromkeys(name for row in plain for name in row)
                fields = [self._field(name, [row.get(name) for row in plain]) for name in names]
                self.file = parquet.ParquetWriter(self.stream, self.arrow.schema(fields))
            table = self.arrow.Table.from_pylist(plain, schema=self.file.schema)
            self.file.write_table(table)
        except (self.arrow.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise BertsmithError(
                f"{self.path}: a column changes its type ({one_line(error)[:100]}); write .jsonl"
            ) from error

    def close(self) -> None:
        if self.file is not None:
            self.file.close()

    def _cell(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.encode("utf-8", "replace").decode()
        if value is None or isinstance(value, bool | int | float | self.array):
            return value
        return as_json(value)

    def _field(self, name: str, values: list[Any]) -> Any:
        kinds = {type(value) for value in values if value is not None}
        if kinds == {self.array}:
            width = len(next(value for value in values if value is not None))
            return self.arrow.field(name, self.arrow.list_(self.arrow.float32(), width))
        known = (({bool}, "bool_"), ({int}, "int64"), ({int, float}, "float64"))
        kind = next((name for types, name in known if kinds and kinds <= types), "string")
        return self.arrow.field(name, getattr(self.arrow, kind)())
