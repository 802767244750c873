"""jsonl, json and parquet files → tables."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.tasks.data.examples import Where
from bertsmith.tasks.data.files import numbered_lines, read_bytes, read_text
from bertsmith.tasks.data.rows import Row, Table


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


def _names(rows: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """Every key of the rows, in the order in which they first come."""
    return tuple(dict.fromkeys(str(key) for row in rows for key in row))


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
