"""`bertsmith index`, `search` and `evaluate-search` as a person runs them."""

import json
import re
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


def test_search(run: Run, search_index: Path) -> None:
    rows = run("search", search_index, "sea whales", "--json").rows
    assert rows[0]["file"].endswith("whales.md")
    assert rows[0]["line"] == 1
    out = run("search", search_index, "sofa", "--keywords").out
    assert "cats.txt:1" in out
    assert "nothing matches" in run("search", search_index, "zebra", "--keywords").out


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["x", "--keywords", "--vectors"], "exclude each other"),
        (["x", "--weights", "1"], "two numbers"),
        (["x", "--weights", "0,0"], "above 0"),
        (["x", "--kind", "pfd"], "unknown kind"),
        ([], "no query"),
        ([" "], "no query"),
    ],
)
def test_mistakes(run: Run, search_index: Path, words: list[str], match: str) -> None:
    with pytest.raises(BertsmithError, match=match):
        run("search", search_index, *words)


def test_index_mistakes(run: Run, tmp_path: Path, search_index: Path) -> None:
    for words, match in {
        ("index", "x"): "--out INDEX",
        ("index", "missing", "--out", tmp_path / "i"): "no such file or folder",
        ("index", "--out", tmp_path / "i"): "name the folders",
        ("index", "--out", search_index, "--passage-size", "100"): "--re-embed",
        ("index", "export", search_index): "give --out",
        ("index", "export", search_index, "--out", tmp_path / "x.txt"): r"\.parquet or \.sql",
    }.items():
        with pytest.raises(BertsmithError) as error:
            run(*words)
        assert re.search(match, error.value.for_command_line())


def test_folders_of_an_index(run: Run, tmp_path: Path) -> None:
    """Patterns, a check, a folder that moved, and one that is dropped."""
    source, out = tmp_path / "notes", tmp_path / "index"
    (source / "drafts").mkdir(parents=True)
    for name in ("a.md", "b.txt", "c.pem", "drafts/d.md"):
        (source / name).write_text(f"Text of {name}")
    words = ("index", source, "--out", out, "--keywords-only", "--exclude", "drafts/")
    notes = run(*words, "--exclude", "*.txt", "--json").rows[0]
    assert notes["total"]["files"] == 1
    assert set(notes["notes"]) == {
        "files and folders of `exclude`, left out: 2",
        "files that may hold passwords or keys, left out: 1",
    }
    assert run("index", "--out", out, "--json").rows[0]["unchanged"] == 1
    assert "all checksums match (1 passage)" in run("index", "--out", out, "--check").out
    source.rename(tmp_path / "moved")
    with pytest.raises(BertsmithError, match=r"no such file or folder; if it was moved"):
        run("index", "--out", out)
    assert "1 moved" in run("index", "--out", out, "--move", source, tmp_path / "moved").out
    assert run("index", "--out", out, "--json").rows[0]["unchanged"] == 1
    dropped = run("index", "--out", out, "--drop", tmp_path / "moved", "--json").rows[0]
    assert (dropped["removed"], dropped["total"]["roots"]) == (1, [])
    with pytest.raises(BertsmithError, match="stand alone"):
        run("index", source, "--out", out, "--check")
    path = next(out.glob("*/index.db"))
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(BertsmithError, match=r"index\.db: damaged"):
        run("index", "--out", out, "--check")


def test_an_index_of_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    words = ("index", tmp_path / "empty", "--out", tmp_path / "index", "--keywords-only")
    assert "note: no file was indexed: a search will find nothing" in run(*words).err


def test_rerank_by_token_states(run: Run, search_index: Path) -> None:
    rows = run("search", search_index, "whales", "--rerank", "index", "--json").rows
    assert rows[0]["file"].endswith("whales.md")
    assert rows[0]["score"] <= 1


def test_evaluate_search(run: Run, documents: Path) -> None:
    run("index", documents / "corpus.jsonl", "--out", documents / "beir", "--keywords-only")
    words = ["--queries", documents / "queries.jsonl", "--judgements", documents / "qrels.tsv"]
    rows = run("evaluate-search", documents / "beir", *words, "--json", "--per-query").rows
    assert rows[0]["modes"][0]["ndcg@10"] == 1
    assert rows[0]["modes"][0]["queries"]["1"]["mrr"] == 1
    assert "1.0000" in run("evaluate-search", documents / "beir", *words).out


def test_long_passages_are_cut_or_read_whole(run: Run, model: Path, tmp_path: Path) -> None:
    """The model reads 64 tokens: of a longer passage all windows count, or the first alone."""
    beginning, rest = "the old Paris " * 25, "bees " * 60
    (tmp_path / "a.txt").write_text(beginning)
    (tmp_path / "b.txt").write_text(beginning + rest)
    words = ("index", tmp_path / "a.txt", tmp_path / "b.txt", "--model", model, "--out")
    cosine = {}
    for long in ("cut", "window"):
        rows = run(*words, tmp_path / long, "--long", long, "--json").rows
        assert rows[0]["total"]["model"]["long"] == long
        hits = run("search", tmp_path / long, beginning, "--vectors", "--json").rows
        cosine[long] = {Path(hit["file"]).name: hit["score"] for hit in hits}
    assert cosine["cut"]["a.txt"] == pytest.approx(1, abs=1e-5)
    assert cosine["cut"]["b.txt"] == pytest.approx(1, abs=1e-5)
    assert cosine["window"]["b.txt"] < 0.999
    with pytest.raises(BertsmithError, match="long='cut'; use re_embed=True") as cut:
        run("index", "--out", tmp_path / "cut", "--long", "window")
    assert "with --long cut; use --re-embed" in cut.value.for_command_line()
    rows = run("index", "--out", tmp_path / "cut", "--long", "window", "--re-embed", "--json").rows
    assert rows[0]["total"]["model"]["long"] == "window"


def test_watch(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watchfiles = pytest.importorskip("watchfiles")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("first")
    (tmp_path / "docs" / "broken.docx").write_bytes(b"no document")

    def changes(*roots: Path, **_: Any) -> Any:
        assert list(roots) == [tmp_path / "docs"]
        (tmp_path / "docs" / "b.txt").write_text("second")
        yield {("added", str(tmp_path / "docs" / "b.txt"))}
        yield set()  # nothing that matters

    monkeypatch.setattr(watchfiles, "watch", changes)
    words = ["index", tmp_path / "docs", "--out", tmp_path / "i", "--keywords-only", "--watch"]
    rows = run(*words, "--json").rows
    assert [row["added"] for row in rows] == [1, 1]
    assert [len(row["problems"]) for row in rows] == [1, 0]  # each is reported once


def test_page(search_index: Path) -> None:
    with Index.open(search_index) as index, server(index) as one:
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


def judged(folder: Path, count: int) -> tuple[Path, Path]:
    queries, grades = folder / "queries.tsv", folder / "qrels.tsv"
    queries.write_text("".join(f"q{n}\tsea whales {n}\n" for n in range(count)))
    grades.write_text("".join(f"q{n}\twhales\t1\n" for n in range(count)))
    return queries, grades


def test_weights_are_learned(run: Run, search_index: Path, tmp_path: Path) -> None:
    queries, grades = judged(tmp_path, 20)
    words = ["--queries", queries, "--judgements", grades, "--learn-weights", "--draws", 50]
    result = run("evaluate-search", search_index, *words)
    assert "cross-validated" in result.out
    assert "no gain: 1,0.7 is kept" in result.out
    [row] = run("evaluate-search", search_index, *words, "--json").rows
    assert row["weights"]["stored"] is False
    assert row["weights"]["queries"] == 20
    with pytest.raises(BertsmithError, match="leave out --weights"):
        run("evaluate-search", search_index, *words, "--weights", "1,1")
    few, grades = judged(tmp_path, 2)
    with pytest.raises(BertsmithError, match="20 judged queries or more; there are 2"):
        run("evaluate-search", search_index, "--queries", few, "--judgements", grades,
            "--learn-weights")  # fmt: skip


def test_mine(run: Run, search_index: Path, tmp_path: Path) -> None:
    queries, grades = judged(tmp_path, 2)
    out = tmp_path / "pairs.jsonl"
    words = ["--queries", queries, "--judgements", grades, "--out", out, "--negatives", 1]
    said = run("mine", search_index, *words)
    assert f"2 rows with 2 negatives in {out}" in said.out
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows[0]["anchor"] == "sea whales 0"
    assert "Whales live" in rows[0]["positive"][0]
    assert len(rows[0]["negative"]) == 1
    [told] = run("mine", search_index, *words, "--json").rows
    assert told == {"out": str(out), "rows": 2, "negatives": 2, "without": 0}
    again = run("mine", search_index, "--queries", out, "--out", tmp_path / "more.jsonl", "--json")
    assert again.rows[0]["rows"] == 2
    with pytest.raises(BertsmithError, match="missing"):
        run("mine", search_index, "--queries", tmp_path / "missing.tsv", "--out", out)


def test_adapt_needs_documents(run: Run, search_index: Path, tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match="too few documents to adapt to"):
        run("adapt", search_index, "--out", tmp_path / "model", "--minutes", 0.1)
    with pytest.raises(BertsmithError, match="go together"):
        run("adapt", search_index, "--queries", tmp_path / "q")
    with pytest.raises(BertsmithError, match=r"no such index|no index"):
        run("adapt", tmp_path / "nowhere")
