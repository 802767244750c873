"""`bertsmith index export`: parquet, PostgreSQL with pgvector, Qdrant."""

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.search import Index
from cli.conftest import Run


def test_export(run: Run, search_index: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run("index", "export", search_index, "--out", tmp_path / "v.parquet", "--json").rows
    table = parquet.read_table(tmp_path / "v.parquet").to_pylist()
    assert [row["text"] for row in table]
    assert len(table[0]["vector"]) == 320
    run("index", "export", search_index, "--out", tmp_path / "v.sql")
    sql = (tmp_path / "v.sql").read_text()
    assert "embedding vector(320)" in sql
    assert sql.count("\n2\t") + sql.count("\n1\t") == 2


def test_export_to_qdrant(run: Run, search_index: Path) -> None:
    """What is sent, and what an error of the server becomes."""
    requests: list[tuple[str, Any]] = []

    class Qdrant(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            requests.append((self.path, json.loads(body)))
            self.send_response(409 if "taken" in self.path else 200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Qdrant) as qdrant:
        threading.Thread(target=qdrant.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{qdrant.server_port}"
        run("index", "export", search_index, "--qdrant", address, "--collection", "my docs")
        with pytest.raises(BertsmithError, match="Qdrant refused"):
            run("index", "export", search_index, "--qdrant", address, "--collection", "taken")
        qdrant.shutdown()
    assert requests[0][0] == "/collections/my%20docs"
    assert requests[0][1]["vectors"] == {"size": 320, "distance": "Cosine"}
    assert len(requests[1][1]["points"]) == 2
    with pytest.raises(BertsmithError, match="no answer"):
        run("index", "export", search_index, "--qdrant", address)


@pytest.fixture
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server with pgvector."""
    if address := os.environ.get("BERTSMITH_POSTGRES"):
        yield address
        return
    pgserver = pytest.importorskip(
        "pgserver",
        reason="needs PostgreSQL with pgvector: pip install pgserver, or BERTSMITH_POSTGRES=URL",
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user where the tests run as root
        with pgserver.get_server(Path(folder) / "data", cleanup_mode="delete") as running:
            yield running.get_uri()


def test_pgvector_finds_the_same(
    run: Run, search_index: Path, tmp_path: Path, postgres: str
) -> None:
    run("index", "export", search_index, "--out", tmp_path / "v.sql", "--collection", "test_docs")
    load = ["psql", postgres, "-q", "-v", "ON_ERROR_STOP=1", "-f", str(tmp_path / "v.sql")]
    subprocess.run(load, check=True)
    with Index.open(search_index) as index:
        query = "whales in the sea"
        vector = index.embed(query).tolist()
        want = [
            (hit.passage, round(hit.vectors or 0, 4)) for hit in index.search(query, mode="vectors")
        ]
    sql = f"SELECT id, -(embedding <#> '{vector}') FROM test_docs ORDER BY 2 DESC"
    done = subprocess.run(["psql", postgres, "-tAc", sql], check=True, capture_output=True)
    rows = [line.split("|") for line in done.stdout.decode().split()]
    assert [(int(number), round(float(cosine), 4)) for number, cosine in rows] == want


def test_qdrant_finds_the_same(run: Run, search_index: Path) -> None:
    """A real server where BERTSMITH_QDRANT names one, else the engine of the official client."""
    client = pytest.importorskip(
        "qdrant_client", reason="needs Qdrant's engine: pip install qdrant-client"
    )
    if address := os.environ.get("BERTSMITH_QDRANT"):
        engine = client.QdrantClient(address)
        engine.delete_collection("test_docs")
        run("index", "export", search_index, "--qdrant", address, "--collection", "test_docs")
    else:
        engine = client.QdrantClient(":memory:")
        with HTTPServer(("127.0.0.1", 0), forwarding(engine)) as one:
            threading.Thread(target=one.serve_forever, daemon=True).start()
            address = f"http://127.0.0.1:{one.server_port}"
            run("index", "export", search_index, "--qdrant", address, "--collection", "test_docs")
            one.shutdown()
    with Index.open(search_index) as index:
        query = "whales in the sea"
        points = engine.query_points("test_docs", query=index.embed(query).tolist()).points
        hits = index.search(query, mode="vectors")
    assert [point.id for point in points] == [hit.passage for hit in hits]
    for point, hit in zip(points, hits, strict=True):
        assert point.score == pytest.approx(hit.vectors, abs=1e-5)
        assert (point.payload["text"], point.payload["line"]) == (hit.text, hit.line)


def forwarding(engine: Any) -> type[BaseHTTPRequestHandler]:
    """A server that reads requests with the models of Qdrant's REST interface."""
    from qdrant_client.http import models

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            name = self.path.split("?")[0].split("/")[2]
            if "/points" in self.path:
                points = models.PointsList.model_validate_json(body).points
                engine.upsert(name, points=points)
            else:
                collection = models.CreateCollection.model_validate_json(body)
                engine.create_collection(name, vectors_config=collection.vectors)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"status": "ok"}')

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
