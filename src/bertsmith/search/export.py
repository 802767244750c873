"""Vectors for other engines: parquet, SQL for PostgreSQL with pgvector, Qdrant over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from bertsmith.errors import BertsmithError
from bertsmith.files import atomic, one_line
from bertsmith.search.index import Index

TIMEOUT = 60.0  # seconds to wait for a response
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
FIELDS = ("file", "document", "title", "heading", "line", "start", "end", "text")


def export(index: Index, out: Path, table: str = "passages") -> int:
    """Write passages with ids and vectors to a .parquet or .sql file; the number of passages."""
    writers: dict[str, Callable[[Index, Path, str], int]] = {".parquet": _parquet, ".sql": _sql}
    if out.suffix not in writers:
        raise BertsmithError(f"{out}: export to a .parquet or .sql file")
    return writers[out.suffix](index, out, table)


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
        for passages, vectors in index.portions():
            columns: dict[str, Any] = {
                name: [getattr(one, name) for one in passages] for name in ("id", *FIELDS)
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
        for passages, vectors in index.portions():
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
                cells = [_copied(getattr(one, name)) for name in FIELDS]
                stream.write("\t".join([str(one.id), *cells]))
                stream.write("\t[" + ",".join(f"{value:.8g}" for value in vector) + "]\n")
            count += len(passages)
        if not count:
            raise BertsmithError(f"{index.path}: has no vectors to export")
        stream.write(
            f"\\.\nCREATE INDEX ON {table} USING hnsw (embedding vector_ip_ops);\nCOMMIT;\n"
        )
    return count


def _copied(value: str | int) -> str:
    """Escape a value for COPY; PostgreSQL cannot store NUL."""
    text = str(value).replace("\\", "\\\\").replace("\0", "")
    return text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


# ------------------------------------------------------------------ Qdrant


def send_to_qdrant(index: Index, address: str, collection: str, key: str | None = None) -> int:
    """Create a collection of a Qdrant server and send all passages; the number of passages."""
    if urlsplit(address).scheme not in ("http", "https"):
        raise BertsmithError(
            f"{address[:80]}: the address of Qdrant must begin with http:// or https://"
        )
    base = f"{address.rstrip('/')}/collections/{quote(collection, safe='')}"
    count = 0
    for passages, vectors in index.portions():
        if not count:
            size = {"size": int(vectors.shape[1]), "distance": "Cosine"}
            _put(base, {"vectors": size}, key)
        points = [
            {
                "id": one.id,
                "vector": vector,
                "payload": {name: getattr(one, name) for name in FIELDS},
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
