"""`bertsmith index`, `search` and `evaluate-search` as a person runs them."""

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.search import Index
from bertsmith.search.page import server
from cli.conftest import Run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("search")
    (place / "docs").mkdir()
    (place / "docs" / "whales.md").write_text("# Whales\n\nWhales live in the sea.\n")
    (place / "docs" / "cats.txt").write_text("Cats sleep on the sofa all day.\n")
    rows = ['{"_id": "w", "text": "whales of the sea"}', '{"_id": "c", "text": "cats on a sofa"}']
    (place / "corpus.jsonl").write_text("\n".join(rows))
    (place / "queries.jsonl").write_text('{"_id": "1", "text": "sea whales"}\n')
    (place / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\tw\t1\n")
    return place


@pytest.fixture(scope="module")
def built(folder: Path) -> Path:
    from typer.testing import CliRunner

    from bertsmith.cli.app import app

    words = ["index", str(folder / "docs"), "--out", str(folder / "index"), "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["added"], report["embedded"]) == (2, 2)
    assert report["total"]["model"]["name"] == "bertsmith-small"
    return folder / "index"


def test_search(run: Run, built: Path) -> None:
    rows = run("search", built, "sea whales", "--json").rows
    assert rows[0]["file"].endswith("whales.md")
    assert rows[0]["line"] == 1
    out = run("search", built, "sofa", "--keywords").out
    assert "cats.txt:1" in out
    assert "nothing matches" in run("search", built, "zebra", "--keywords").out


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["x", "--keywords", "--vectors"], "exclude each other"),
        (["x", "--weights", "1"], "two numbers"),
        (["x", "--weights", "0,0"], "above 0"),
        (["x", "--kind", "pfd"], "unknown kind"),
        ([], "Give a query"),
    ],
)
def test_mistakes(run: Run, built: Path, words: list[str], match: str) -> None:
    with pytest.raises(BertsmithError, match=match):
        run("search", built, *words)


def test_index_mistakes(run: Run, tmp_path: Path, built: Path) -> None:
    for words, match in {
        ("index", "x"): "--out INDEX",
        ("index", "missing", "--out", tmp_path / "i"): "no such file or folder",
        ("index", "--out", tmp_path / "i"): "name the folders",
        ("index", "--out", built, "--passage-size", "100"): "--re-embed",
        ("index", "export", built): "give --out",
        ("index", "export", built, "--out", tmp_path / "x.txt"): r"\.parquet or \.sql",
    }.items():
        with pytest.raises(BertsmithError, match=match):
            run(*words)


def test_rerank_by_token_states(run: Run, built: Path) -> None:
    rows = run("search", built, "whales", "--rerank", "index", "--json").rows
    assert rows[0]["file"].endswith("whales.md")
    assert rows[0]["score"] <= 1


def test_evaluate_search(run: Run, folder: Path) -> None:
    run("index", folder / "corpus.jsonl", "--out", folder / "beir", "--keywords-only")
    words = ["--queries", folder / "queries.jsonl", "--judgements", folder / "qrels.tsv"]
    rows = run("evaluate-search", folder / "beir", *words, "--json", "--per-query").rows
    assert rows[0]["modes"][0]["ndcg@10"] == 1
    assert rows[0]["modes"][0]["queries"]["1"]["mrr"] == 1
    assert "1.0000" in run("evaluate-search", folder / "beir", *words).out


def test_export(run: Run, built: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run("index", "export", built, "--out", tmp_path / "v.parquet", "--json").rows
    table = parquet.read_table(tmp_path / "v.parquet").to_pylist()
    assert [row["text"] for row in table]
    assert len(table[0]["vector"]) == 320
    run("index", "export", built, "--out", tmp_path / "v.sql")
    sql = (tmp_path / "v.sql").read_text()
    assert "embedding vector(320)" in sql
    assert sql.count("\n2\t") + sql.count("\n1\t") == 2


def test_export_to_qdrant(run: Run, built: Path) -> None:
    """Against a server that answers as Qdrant does; a real one is not in the registries."""
    from http.server import BaseHTTPRequestHandler, HTTPServer

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
        run("index", "export", built, "--qdrant", address, "--collection", "my docs")
        with pytest.raises(BertsmithError, match="Qdrant refused"):
            run("index", "export", built, "--qdrant", address, "--collection", "taken")
        qdrant.shutdown()
    assert requests[0][0] == "/collections/my%20docs"
    assert requests[0][1]["vectors"] == {"size": 320, "distance": "Cosine"}
    assert len(requests[1][1]["points"]) == 2
    with pytest.raises(BertsmithError, match="no answer"):
        run("index", "export", built, "--qdrant", address)


def test_watch(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watchfiles = pytest.importorskip("watchfiles")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("first")

    def changes(*roots: Path, **_: Any) -> Any:
        assert list(roots) == [tmp_path / "docs"]
        (tmp_path / "docs" / "b.txt").write_text("second")
        yield {("added", str(tmp_path / "docs" / "b.txt"))}
        yield set()  # nothing that matters

    monkeypatch.setattr(watchfiles, "watch", changes)
    words = ["index", tmp_path / "docs", "--out", tmp_path / "i", "--keywords-only", "--watch"]
    rows = run(*words, "--json").rows
    assert [row["added"] for row in rows] == [1, 1]


def test_page(built: Path) -> None:
    with Index.open(built) as index, server(index) as one:
        threading.Thread(target=one.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{one.server_port}"
        with urlopen(address) as page:
            assert "connect-src &#39;self&#39;" in page.read().decode()
        with urlopen(f"{address}/search?q=sofa&mode=keywords") as answer:
            assert json.load(answer)["results"][0]["file"].endswith("cats.txt")
        for path, status in {"/search?q=x&kind=no": 400, "/other": 404}.items():
            with pytest.raises(HTTPError) as caught:
                urlopen(address + path)
            assert caught.value.code == status
        with pytest.raises(HTTPError) as caught:
            urlopen(Request(address, headers={"Host": "evil.example:80"}))
        assert caught.value.code == 403
        one.shutdown()


@pytest.mark.parametrize("name", ["BERTSMITH_POSTGRES", "BERTSMITH_QDRANT"])
def test_a_real_engine(run: Run, built: Path, tmp_path: Path, name: str) -> None:
    """PostgreSQL with pgvector, or Qdrant, where the variable holds the address of one."""
    address = os.environ.get(name)
    if not address:
        pytest.skip(f"{name} names no server (pgvector and Qdrant are not in the registries)")
    if name == "BERTSMITH_QDRANT":
        run("index", "export", built, "--qdrant", address, "--collection", "bertsmith_test")
        with urlopen(f"{address}/collections/bertsmith_test") as answer:
            assert json.load(answer)["result"]["points_count"] == 2
        return
    run("index", "export", built, "--out", tmp_path / "v.sql", "--collection", "bertsmith_test")
    load = ["psql", address, "-v", "ON_ERROR_STOP=1", "-f", str(tmp_path / "v.sql")]
    subprocess.run(load, check=True)
    count = ["psql", address, "-tAc", "SELECT count(*) FROM bertsmith_test"]
    assert subprocess.run(count, check=True, capture_output=True, text=True).stdout.strip() == "2"
