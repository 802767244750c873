"""Vectors for other engines: parquet, SQL for PostgreSQL with pgvector, Qdrant over HTTP."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from bertsmith.data.vectors import open_vectors
from bertsmith.errors import BertsmithError
from bertsmith.files import atomic, one_line
from bertsmith.search.index import Index

TIMEOUT = 60.0  # seconds to wait for a response
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
FIELDS = ("id", "file", "document", "title", "heading", "line", "start", "end", "text")


def export(index: Index, out: Path, table: str = "passages") -> int:
    """Write passages with ids and vectors to a .parquet or .sql file; the number of passages."""
    if out.suffix == ".sql":
        return _sql(index, out, table)
    if out.suffix != ".parquet":
        raise BertsmithError(f"{out}: export to a .parquet or .sql file")
    with open_vectors(out) as writer:
        count = 0
        for rows, vectors in _portions(index):
            writer.write(rows, vectors)
            count += len(rows)
    return count


def _portions(index: Index) -> Iterator[tuple[list[dict[str, Any]], Any]]:
    """All passages as rows, with their vectors; without any vector an error."""
    passages = None
    for passages, vectors in index.portions():
        yield [{name: getattr(row, name) for name in FIELDS} for row in passages], vectors
    if passages is None:
        raise BertsmithError(f"{index.path}: has no vectors to export")


def _sql(index: Index, out: Path, table: str) -> int:
    """A file for psql: the extension, a table, all rows by COPY, an HNSW index."""
    if not NAME.fullmatch(table):
        raise BertsmithError(f"{table[:40]!r} is not a valid table name: use letters, digits and _")
    count = 0
    with atomic(out, "w") as stream:
        for rows, vectors in _portions(index):
            if not count:
                stream.write(
                    "CREATE EXTENSION IF NOT EXISTS vector;\nBEGIN;\n"
                    f"DROP TABLE IF EXISTS {table};\nCREATE TABLE {table} (\n"
                    "  id bigint PRIMARY KEY, file text, document text, title text, heading text,\n"
                    '  line bigint, "start" bigint, "end" bigint, text text,\n'
                    f"  embedding vector({vectors.shape[1]})\n);\n"
                    f"COPY {table} FROM stdin;\n"
                )
            for row, vector in zip(rows, vectors.tolist(), strict=True):
                stream.write("\t".join(map(_copied, row.values())))
                stream.write("\t[" + ",".join(f"{value:.8g}" for value in vector) + "]\n")
            count += len(rows)
        index_rows = f"CREATE INDEX ON {table} USING hnsw (embedding vector_ip_ops);"
        stream.write(f"\\.\n{index_rows}\nCOMMIT;\n")
    return count


def _copied(value: str | int) -> str:
    """Escape a value for COPY; PostgreSQL cannot store NUL."""
    text = str(value).replace("\\", "\\\\").replace("\0", "")
    return text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def send_to_qdrant(index: Index, address: str, collection: str, key: str | None = None) -> int:
    """Create a collection of a Qdrant server and send all passages; the number of passages."""
    if urlsplit(address).scheme not in ("http", "https"):
        advice = "the address of Qdrant must begin with http:// or https://"
        raise BertsmithError(f"{address[:80]}: {advice}")
    base = f"{address.rstrip('/')}/collections/{quote(collection, safe='')}"
    count = 0
    for rows, vectors in _portions(index):
        if not count:
            size = {"size": int(vectors.shape[1]), "distance": "Cosine"}
            _put(base, {"vectors": size}, key)
        pairs = zip(rows, vectors.tolist(), strict=True)
        points = [{"id": row.pop("id"), "vector": own, "payload": row} for row, own in pairs]
        _put(f"{base}/points?wait=true", {"points": points}, key)
        count += len(points)
    return count


def _put(address: str, content: dict[str, Any], key: str | None) -> None:
    headers = {"Content-Type": "application/json", **({"api-key": key} if key else {})}
    request = Request(address, json.dumps(content).encode(), headers, method="PUT")
    try:
        with urlopen(request, timeout=TIMEOUT) as answer:
            answer.read(1 << 20)
    except HTTPError as error:
        text = one_line(error.read(1000).decode("utf-8", "replace"))
        raise BertsmithError(f"{address}: Qdrant refused ({error.code}: {text})") from None
    except OSError as error:  # a URLError is one
        cause = getattr(error, "reason", error)
        raise BertsmithError(f"{address}: no answer ({one_line(cause)})") from None
