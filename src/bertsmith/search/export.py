"""Vectors for other engines: parquet, SQL for PostgreSQL with pgvector, Qdrant over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from bertsmith.errors import BertsmithError
from bertsmith.files import atomic, one_line
from bertsmith.search.index import Index
from bertsmith.search.store import Stored

PORTION = 1024  # passages at once
TIMEOUT = 60.0  # seconds to wait for a response
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
Portion = tuple[list[Stored], Any]


def export(index: Index, out: Path, table: str = "passages") -> int:
    """Write passages with ids and vectors to a .parquet or .sql file; the number of passages."""
    writers: dict[str, Callable[[Index, Path, str], int]] = {".parquet": _parquet, ".sql": _sql}
    if out.suffix not in writers:
        raise BertsmithError(f"{out}: export to a .parquet or .sql file")
    return writers[out.suffix](index, out, table)


def portions(index: Index) -> Iterator[Portion]:
    """All passages with their vectors (N, D), in order of their ids."""
    yield from index.portions(PORTION)


# ------------------------------------------------------------------ parquet


def _parquet(index: Index, out: Path, table: str) -> int:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise BertsmithError(f"{out}: parquet files need pyarrow: pip install pyarrow") from None
    count = 0
    writer = None
    with atomic(out) as stream:
        for passages, vectors in portions(index):
            columns: dict[str, Any] = {
                "id": [one.id for one in passages],
                "file": [one.file for one in passages],
                "document": [one.document for one in passages],
                "title": [one.title for one in passages],
                "heading": [one.heading for one in passages],
                "line": [one.line for one in passages],
                "start": [one.start for one in passages],
                "end": [one.end for one in passages],
                "text": [one.text for one in passages],
            }
            flat = pyarrow.array(vectors.reshape(-1), pyarrow.float32())
            columns["vector"] = pyarrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
            batch = pyarrow.table(columns)
            if writer is None:
                writer = parquet.ParquetWriter(stream, batch.schema)
            writer.write_table(batch)
            count += len(passages)
        if writer is None:
            raise BertsmithError(f"{index.path}: has no vectors to export")
        writer.close()
    return count


# ------------------------------------------------------------------ PostgreSQL


def _sql(index: Index, out: Path, table: str) -> int:
    """A file for psql: the extension, a table, all rows by COPY, an HNSW index."""
    if not NAME.fullmatch(table):
        raise BertsmithError(f"{table[:40]!r} is not a valid table name: use letters, digits and _")
    count = 0
    with atomic(out, "w") as stream:
        for passages, vectors in portions(index):
            if not count:
                stream.write(
                    "CREATE EXTENSION IF NOT EXISTS vector;\nBEGIN;\n"
                    f"DROP TABLE IF EXISTS {table};\nCREATE TABLE {table} (\n"
                    "  id bigint PRIMARY KEY, file text, document text, title text, heading text,\n"
                    '  line bigint, "start" bigint, "end" bigint, text text,\n'
                    f"  embedding vector({vectors.shape[1]})\n);\n"
                    f"COPY {table} FROM stdin;\n"
                )
            for one, vector in zip(passages, vectors.tolist(), strict=True):
                texts = (one.file, one.document, one.title, one.heading)
                numbers = (one.line, one.start, one.end)
                cells = [one.id, *map(_copied, texts), *numbers, _copied(one.text)]
                stream.write("\t".join(map(str, cells)))
                stream.write("\t[" + ",".join(f"{value:.8g}" for value in vector) + "]\n")
            count += len(passages)
        if not count:
            raise BertsmithError(f"{index.path}: has no vectors to export")
        stream.write(
            f"\\.\nCREATE INDEX ON {table} USING hnsw (embedding vector_ip_ops);\nCOMMIT;\n"
        )
    return count


def _copied(text: str) -> str:
    """Escape a text for COPY; PostgreSQL cannot store NUL."""
    escapes: dict[str, str | int | None] = {
        "\\": "\\\\",
        "\t": "\\t",
        "\n": "\\n",
        "\r": "\\r",
        "\0": "",
    }
    return text.translate(str.maketrans(escapes))


# ------------------------------------------------------------------ Qdrant


def send_to_qdrant(index: Index, address: str, collection: str, key: str | None = None) -> int:
    """Create a collection of a Qdrant server and send all passages; the number of passages."""
    if urlsplit(address).scheme not in ("http", "https"):
        raise BertsmithError(
            f"{address[:80]}: the address of Qdrant must begin with http:// or https://"
        )
    base = f"{address.rstrip('/')}/collections/{quote(collection, safe='')}"
    count = 0
    for passages, vectors in portions(index):
        if not count:
            size = {"size": int(vectors.shape[1]), "distance": "Cosine"}
            _put(base, {"vectors": size}, key)
        points = [
            {
                "id": one.id,
                "vector": vector,
                "payload": {
                    "file": one.file,
                    "document": one.document,
                    "title": one.title,
                    "heading": one.heading,
                    "line": one.line,
                    "start": one.start,
                    "end": one.end,
                    "text": one.text,
                },
            }
            for one, vector in zip(passages, vectors.tolist(), strict=True)
        ]
        _put(f"{base}/points?wait=true", {"points": points}, key)
        count += len(passages)
    if not count:
        raise BertsmithError(f"{index.path}: has no vectors to export")
    return count


def _put(address: str, content: dict[str, Any], key: str | None) -> None:
    headers = {"Content-Type": "application/json", **({"api-key": key} if key else {})}
    request = Request(address, json.dumps(content).encode(), headers, method="PUT")
    try:
        with urlopen(request, timeout=TIMEOUT) as answer:
            answer.read(1 << 20)
    except HTTPError as error:
        text = error.read(1000).decode("utf-8", "replace")
        raise BertsmithError(
            f"{address}: Qdrant refused ({error.code}: {one_line(text)})"
        ) from None
    except (URLError, OSError) as error:
        cause = getattr(error, "reason", error)
        raise BertsmithError(f"{address}: no answer ({one_line(cause)})") from None
