"""The records of small files of any usual kind: tables, JSON, lines of text."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.files import (
    cause,
    import_package,
    not_utf8,
    read_lines,
    read_whole,
    reading,
    suffix_of,
)


def records(path: Path) -> Iterator[Any]:
    """Yield rows of tables as lists (csv, tsv) or dicts (parquet), values of JSON, or lines."""
    kind = suffix_of(path)
    with reading(path):
        try:
            if kind == ".parquet":
                import_package("pyarrow", f"{path}: parquet files need pyarrow")
                from pyarrow import parquet

                with parquet.ParquetFile(path) as table:
                    for batch in table.iter_batches(1024):
                        yield from batch.to_pylist()
            elif kind == ".json":
                yield json.loads(read_whole(path))
            elif kind in (".jsonl", ".ndjson"):
                yield from (json.loads(line) for line in read_lines(path) if line.strip())
            elif kind == ".csv":
                yield from csv.reader(_lines(path))
            elif kind == ".tsv":  # as in GLUE: quotes are text
                yield from csv.reader(_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)
            else:
                yield from _lines(path)
        except (ValueError, csv.Error, RecursionError) as error:  # also pyarrow's
            raise BertsmithError(f"{path}: cannot be read ({cause(error)})") from error


def _lines(path: Path) -> Iterator[str]:
    for number, line in enumerate(read_lines(path), 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise not_utf8(path, number, line[error.start]) from None
