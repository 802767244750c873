"""jsonl, json and parquet files → tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertsmith.data.examples import Where
from bertsmith.data.files import numbered_lines, read_bytes, read_text
from bertsmith.data.rows import Row, Table
from bertsmith.errors import BertsmithError
from bertsmith.files import inner


def read_json_lines(path: Path) -> Table:
    """A file with a JSON object a line."""
    rows = list(json_rows(path, numbered_lines(read_text(path))))
    return Table(path, names_of(rows), rows)


def json_rows(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[Row]:
    """The object on each line."""
    for number, line in lines:
        if line.strip():
            yield Row(number, _object(line, Where(str(path), number)))


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
    return Table(path, names_of(rows), rows, unit="row")


def _object(line: str, where: Where) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", "nested too deeply")
        raise BertsmithError(f"{where}: not JSON ({reason})") from None
    if not isinstance(value, dict):
        raise BertsmithError(f"{where}: not a JSON object")
    return value


def names_of(rows: Iterable[Row]) -> tuple[str, ...]:
    """Every key of the rows, in the order in which they first come."""
    return tuple(dict.fromkeys(str(key) for row in rows for key in row.cells))


def read_parquet(path: Path) -> Table:
    """A parquet file, with the class names that the `datasets` library writes into it."""
    table, _, batches = open_parquet(path, 1 << 16)
    return replace(table, rows=[row for rows in batches for row in rows])


def open_parquet(path: Path, size: int) -> tuple[Table, int, Iterator[list[Row]]]:
    """A table without rows, how many it has, and these, so many at a time."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise BertsmithError(
            f"{path}: reading parquet needs pyarrow: pip install pyarrow"
        ) from error
    broken = (pyarrow.ArrowException, OSError, ValueError)

    def fault(error: BaseException) -> BertsmithError:
        why = " ".join(str(error).split())[:120]
        return BertsmithError(f"{path}: not a parquet file that can be read ({why})")

    def batches() -> Iterator[list[Row]]:
        done = 0
        try:
            for batch in file.iter_batches(batch_size=size):
                listed = batch.to_pylist()
                yield [Row(number, cells) for number, cells in enumerate(listed, done + 1)]
                done += len(listed)
        except broken as error:
            raise fault(error) from error

    # A packed file cannot be read from any place, so it is unpacked whole.
    plain = inner(path) == path and path.is_file() and path.stat().st_size > 0
    source = path if plain else pyarrow.BufferReader(read_bytes(path))
    try:
        file = parquet.ParquetFile(source)
    except broken as error:
        raise fault(error) from error
    schema = file.schema_arrow
    classes = _classes((schema.metadata or {}).get(b"huggingface", b"{}"))
    table = Table(path, tuple(schema.names), [], unit="row", classes=classes)
    return table, file.metadata.num_rows, batches()


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
