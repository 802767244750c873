"""Building, updating and searching an index."""

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertsmith as bs
from bertsmith.errors import BertsmithError
from bertsmith.files import locked
from bertsmith.search.build import BuildSettings, update_folders
from bertsmith.search.database import current
from bertsmith.search.index import Index
from bertsmith.search.segments import stored, unit_vectors
from bertsmith.search.store import Store
from bertsmith.search.vectors import VectorTable
from search.conftest import HashedWords
from search.finding import names


def touch(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    os.utime(path, (1, path.stat().st_mtime + 10))


def test_hits_know_their_place(index: Index, folder: Path) -> None:
    hit = index.search("fish mice", top=1)[0]
    assert hit.file == str(folder / "cats.md")
    assert (hit.line, hit.unit, hit.heading, hit.title) == (5, "line", "Cats > Food", "Cats")
    text = (folder / "cats.md").read_text()
    assert text[hit.start : hit.end] == hit.text == "## Food\n\nCats eat fish and mice."
    assert [hit.text[a:b] for a, b in hit.highlights] == ["fish", "mice"]
    assert hit.to_dict()["kind"] == "markdown"


@pytest.mark.parametrize("mode", ["hybrid", "keywords", "vectors"])
def test_modes(index: Index, mode: str) -> None:
    assert names(index.search("birds sing in the morning", mode=mode))[0] == "birds.html"


def test_an_update_embeds_what_is_new(index: Index, folder: Path, encoder: HashedWords) -> None:
    assert index.update().embedded == 0
    encoder.calls = 0
    touch(folder / "cats.md", (folder / "cats.md").read_text() + "\nMilk is no food for cats.\n")
    touch(folder / "new.txt", "Whales live in the sea.\n")
    (folder / "dogs.txt").unlink()
    (folder / "fruit.jsonl").rename(folder / "moved.jsonl")
    update = index.update()
    assert (update.added, update.changed, update.removed) == (2, 1, 2)
    assert encoder.calls == 2  # the new passage and the changed one; what moved is known
    assert names(index.search("whales sea"))[0] == "new.txt"
    assert "dogs.txt" not in names(index.search("dogs bark night"))
    assert names(index.search("yellow fruit"))[0] == "moved.jsonl"


def test_updates_equal_a_new_index(index: Index, folder: Path, tmp_path: Path) -> None:
    for number in range(12):
        touch(folder / f"n{number}.txt", f"Number {number} of many words.\n")
        index.update()
    (folder / "n3.txt").unlink()
    index.update()
    encoder = HashedWords()
    update_folders(tmp_path / "fresh", [folder], BuildSettings(encoder=encoder))
    fresh = Index(tmp_path / "fresh", model=encoder)
    for query in ("number many words", "cats", "fruit"):
        for mode in ("hybrid", "keywords", "vectors"):
            old, new = (one.search(query, top=50, mode=mode) for one in (index, fresh))
            key = [(hit.file, hit.start, round(hit.score, 5)) for hit in old]
            assert sorted(key) == sorted((h.file, h.start, round(h.score, 5)) for h in new)
    assert len(list(current(index.path).glob("*.npy"))) < 10  # small segments were merged


def test_documents_from_python(tmp_path: Path) -> None:
    encoder = HashedWords()
    update_folders(tmp_path / "i", [__file__], BuildSettings(encoder=encoder))
    index = Index(tmp_path / "i", model=encoder)
    index.add([{"id": "w", "text": "Whales live in the sea.", "title": "Whales"}, "A plain text"])
    assert index.search("whales")[0].document == "w"
    index.add([{"id": "w", "text": "Now of elephants."}])
    assert not index.search("whales", mode="keywords", kinds="added")
    assert index.remove(["w", "A plain text"]).removed == 2
    with pytest.raises(BertsmithError, match="w: no such file or document"):
        index.remove("w")
    with pytest.raises(BertsmithError, match="a document is a text"):
        index.add([{"id": "no text"}])
    with pytest.raises(BertsmithError, match="takes a list"):
        index.add("a folder, or one text: its letters are no documents")


def test_another_model_is_refused(index: Index, folder: Path, encoder: HashedWords) -> None:
    other = HashedWords("another one")
    with pytest.raises(BertsmithError, match=r"another model.*re_embed=True") as refused:
        Index(index.path, model=other)
    assert refused.value.for_command_line().endswith("--model hashed-words --re-embed")
    before = current(index.path)
    update_folders(index.path, [], BuildSettings(encoder=other), re_embed=True)
    assert current(index.path) != before
    assert not before.exists()
    assert other.calls == len(index)
    assert Index(index.path, model=other).search("cats fish")
    with pytest.raises(BertsmithError, match="passages have 1600 characters"):
        update_folders(index.path, [], BuildSettings(encoder=other, passage_size=60))
    other.calls = 0
    update_folders(index.path, [], BuildSettings(encoder=other, passage_size=60), re_embed=True)
    assert other.calls == len(Index(index.path, model=other))  # none of the former passages
    assert names(Index(index.path, model=other).search("cats purr"))[0] == "cats.md"


def test_a_search_reads_one_state(
    index: Index, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that is embedded again while its rankings are computed."""
    nearest = VectorTable.nearest

    def replaced_meanwhile(table: VectorTable, *values: Any) -> Any:
        with monkeypatch.context() as once:
            once.setattr(VectorTable, "nearest", nearest)
            update_folders(index.path, [], BuildSettings(encoder=HashedWords()), re_embed=True)
        return nearest(table, *values)

    before = index.search("cats eat")
    monkeypatch.setattr(VectorTable, "nearest", replaced_meanwhile)
    read: list[Path] = []
    passages = Store.passages

    def noted(store: Store, ids: Any) -> Any:
        read.append(store.folder)
        return passages(store, ids)

    monkeypatch.setattr(Store, "passages", noted)
    folder_before = current(index.path)
    assert index.search("cats eat") == before
    assert set(read) == {folder_before} != {current(index.path)}


def test_a_damaged_segment_is_named_and_rebuilt(index: Index) -> None:
    want = [(hit.file, hit.score) for hit in index.search("cats eat", mode="vectors")]
    segment = next(current(index.path).glob("*.npy"))
    content = bytearray(segment.read_bytes())
    content[-3] ^= 4
    infinite = content[:-4] + b"\0\0\x80\x7f"
    for damage in (bytes(content), bytes(infinite), content[:100], None):
        segment.unlink()
        if damage is not None:
            segment.write_bytes(damage)
        again = Index(index.path, model=HashedWords())
        named = pytest.raises(BertsmithError, match=rf"{segment.name}: .*rebuilds it from the text")
        with named:  # one bit of a number is found by a check, not by a search
            again.check() if damage == content else again.search("cats eat")
        assert again.search("cats eat", mode="keywords")
        assert again.update().repaired == [segment.name]
        assert [(hit.file, hit.score) for hit in again.search("cats eat", mode="vectors")] == want


def test_a_damaged_database_is_named(index: Index) -> None:
    """A flipped bit is found by a check and by the next update, if it changes what is stored."""
    want = [hit.text for hit in index.search("cats", mode="keywords")]
    index.close()
    path = current(index.path) / "index.db"
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    named = 0
    for place in rng.integers(0, len(content), 40).tolist():
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        try:
            with Index.open(index.path) as again:
                again.check()
                assert [hit.text for hit in again.search("cats", mode="keywords")] == want
        except BertsmithError as error:
            named += re.search(r"index\.db: damaged.*build it again", str(error)) is not None
            with pytest.raises(BertsmithError, match=r"index\.db: damaged"):
                update_folders(index.path, [], BuildSettings(encoder=HashedWords()))
    assert named
    for cut in (0, 50, len(content) // 2):
        path.write_bytes(content[:cut])
        with pytest.raises(BertsmithError, match=r"index\.db: damaged"):
            Index.open(index.path).check()
    path.write_bytes(content)
    assert Index.open(index.path).search("cats", mode="keywords")


def test_a_damaged_row_is_never_shown(index: Index) -> None:
    path = current(index.path) / "index.db"
    database = sqlite3.connect(path)
    database.execute("UPDATE passages SET text = replace(text, 'fish', 'dust')")
    database.commit()
    database.close()
    with pytest.raises(BertsmithError, match="is not what was written"):
        Index.open(index.path).search("cats fish", mode="keywords")


def test_opening_reads_no_more_for_a_large_index(
    index: Index, encoder: HashedWords, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither opening nor searching computes checksums of files; reading stays with SQLite."""
    steps: list[int] = []
    connect = sqlite3.connect

    def counted(*values: Any, **named: Any) -> sqlite3.Connection:
        database: sqlite3.Connection = connect(*values, **named)
        database.set_progress_handler(lambda: steps.append(1), 100)
        return database

    def opened() -> int:
        steps.clear()
        Index(index.path, model=encoder).close()
        return len(steps)

    def refuse(*_: Any) -> str:
        raise AssertionError("a checksum of a whole file")

    monkeypatch.setattr(sqlite3, "connect", counted)
    small = opened()
    index.add([f"Number {number} and some more text" for number in range(2000)])
    monkeypatch.setattr("hashlib.file_digest", refuse)
    monkeypatch.setattr("bertsmith.search.store.Store.verify", refuse)
    assert opened() <= small + 1
    assert Index(index.path, model=encoder).search("number 17")


def test_two_writers(index: Index, folder: Path) -> None:
    with locked(index.path), pytest.raises(BertsmithError, match="another bertsmith process"):
        subprocess_locked(index.path, folder)


def subprocess_locked(index: Path, folder: Path) -> None:
    code = "import sys; from bertsmith.search.build import *; from pathlib import Path\n"
    code += "try: update_folders(Path(sys.argv[1]), [sys.argv[2]], BuildSettings())\n"
    code += "except Exception as error: sys.exit(str(error))"
    done = subprocess.run(
        [sys.executable, "-c", code, index, folder], capture_output=True, text=True
    )
    raise BertsmithError(done.stderr)


def test_readers_see_one_state(index: Index, folder: Path, encoder: HashedWords) -> None:
    """A transaction that is not finished is invisible, and one that failed leaves no trace."""
    before = len(index)

    class Failing(HashedWords):
        def embed(self, texts: list[str]) -> np.ndarray:
            assert len(index) == before
            raise KeyboardInterrupt

    touch(folder / "new.txt", "Whales live in the sea.\n")
    with pytest.raises(KeyboardInterrupt):
        update_folders(index.path, [], BuildSettings(encoder=Failing()))
    assert len(index) == before
    assert not index.search("whales", mode="keywords")
    assert index.update().added == 1
    assert names(index.search("whales"))[0] == "new.txt"


def test_files_that_cannot_be_read(index: Index, folder: Path) -> None:
    (folder / "broken.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    (folder / "picture.png").write_bytes(b"\x89PNG\0\0" * 50)
    touch(folder / "fruit.jsonl", '{"_id": "a", "text": "changed"}\nnot JSON\n')
    update = index.update()
    reasons = {Path(one["file"]).name: one["reason"] for one in update.problems}
    assert set(reasons) == {"broken.jsonl", "fruit.jsonl"}
    assert reasons["broken.jsonl"].startswith("line 2: not valid JSON")  # the file is named
    assert "its former content is kept" in reasons["fruit.jsonl"]
    assert index.search("yellow fruit", mode="keywords")
    assert not index.search("fine changed", mode="keywords")
    assert "files that hold no text (binary), left out: 1" in index.ledger.lines()


@pytest.mark.parametrize("name", ["missing", "documents/cats.md", "documents"])
def test_no_index(tmp_path: Path, folder: Path, name: str) -> None:
    told = {"missing": "index FOLDER --out", "documents": "documents --out INDEX"}.get(name, "file")
    with pytest.raises(BertsmithError) as error:
        Index.open(tmp_path / name)
    assert told in error.value.for_command_line()
    if name != "missing":
        with pytest.raises(BertsmithError, match=r"exists|holds other files"):
            update_folders(tmp_path / name, [folder], BuildSettings(encoder=HashedWords()))


def test_without_vectors(folder: Path, tmp_path: Path) -> None:
    update_folders(tmp_path / "i", [folder], BuildSettings(keywords_only=True))
    index = Index.open(tmp_path / "i")
    assert names(index.search("cats fish"))[0] == "cats.md"
    with pytest.raises(BertsmithError, match="without vectors"):
        index.search("cats", mode="vectors")


def test_half_precision_is_close(folder: Path, tmp_path: Path, index: Index) -> None:
    encoder = HashedWords()
    update_folders(tmp_path / "half", [folder], BuildSettings(encoder=encoder, dtype="float16"))
    half = Index(tmp_path / "half", model=encoder)
    pairs = zip(*(one.search("cats eat", mode="vectors") for one in (half, index)), strict=True)
    assert all(abs(a.score - b.score) < 1e-3 for a, b in pairs)


def test_a_graph_of_neighbours(
    index: Index, encoder: HashedWords, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr("bertsmith.search.vectors.GRAPH_FROM", 1)
    graph = Index(index.path, model=encoder)
    with monkeypatch.context() as exact:
        exact.setattr("bertsmith.search.vectors.GRAPH_FROM", 1000)
        want = index.search("cats eat fish", mode="vectors", top=5)
    for _ in range(2):  # built, then read
        hits = graph.search("cats eat fish", mode="vectors", top=5)
        assert [(h.file, round(h.score, 5)) for h in hits] == [
            (h.file, round(h.score, 5)) for h in want
        ]
        graph = Index(index.path, model=encoder)
    cache = next(current(index.path).glob("*.faiss"))
    cache.write_bytes(cache.read_bytes()[:-40])
    assert graph.search("cats eat fish", mode="vectors")[0].file == want[0].file


def test_a_missing_pointer_is_written_again(index: Index, folder: Path) -> None:
    index.add([{"id": "w", "text": "Whales live in the sea."}])
    (index.path / "index.json").unlink()
    with pytest.raises(BertsmithError, match=r"is no index; `Index\.create") as missing:
        Index.open(index.path)
    assert "is no index; `bertsmith index FOLDER --out" in missing.value.for_command_line()
    update_folders(index.path, [folder], BuildSettings(encoder=HashedWords()))
    assert names(Index(index.path, model=HashedWords()).search("whales sea"))[0] == "w"


def test_ids_and_paths_do_not_mix(index: Index, folder: Path) -> None:
    with pytest.raises(BertsmithError, match="is the path of an indexed file"):
        index.add([{"id": str(folder / "cats.md"), "text": "x"}])
    index.add([{"id": str(folder / "later.txt"), "text": "added"}])
    (folder / "later.txt").write_text("a file")
    assert "was added from Python" in index.update().problems[0]["reason"]


def test_a_first_run_that_is_interrupted_goes_on(folder: Path, tmp_path: Path) -> None:
    for number in range(30):
        (folder / f"many{number}.txt").write_text(f"Text {number}.\n")

    class Stopped(HashedWords):
        def embed(self, texts: list[str]) -> np.ndarray:
            if self.calls >= 20:
                raise KeyboardInterrupt
            return super().embed(texts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertsmith.search.update.COMMIT_PASSAGES", 5)
        with pytest.raises(KeyboardInterrupt):
            update_folders(tmp_path / "i", [folder], BuildSettings(encoder=Stopped()))
    encoder = HashedWords()
    assert 0 < len(Index(tmp_path / "i", model=encoder)) < 39
    update = update_folders(tmp_path / "i", [folder], BuildSettings(encoder=encoder))
    assert 0 < update.added < 36
    assert len(Index(tmp_path / "i", model=encoder)) == 39


def test_ctrl_c_right_after_a_commit(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two transactions nothing is open, and nothing is to be undone."""
    monkeypatch.setattr("bertsmith.search.update.COMMIT_PASSAGES", 1)
    commit = Store.commit
    commits = []

    def interrupted(store: Store) -> None:
        commit(store)
        commits.append(store.generation())
        if len(commits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Store, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        update_folders(tmp_path / "i", [folder], BuildSettings(keywords_only=True))
    assert 0 < len(Index.open(tmp_path / "i")) < 9


def test_progress_counts_what_is_embedded(folder: Path, tmp_path: Path) -> None:
    """The first report comes before anything is embedded, the last when all is done."""
    reports: list[tuple[int, int, int]] = []

    def report(done: int, total: int, update: bs.search.IndexUpdate) -> None:
        reports.append((done, total, update.embedded))

    text = "A sentence of a long file.\n\n" * 2000
    (folder / "long.txt").write_text(text)
    update_folders(tmp_path / "i", [folder], BuildSettings(encoder=HashedWords()), report=report)
    total = sum(path.stat().st_size for path in folder.iterdir())
    assert reports[0] == (0, total, 0)
    done = [one[0] for one in reports]
    assert done == sorted(done)
    assert done[-1] == total
    assert len(set(done)) > 5


def test_a_name_that_cannot_be_written(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match="cannot be written"):
        update_folders(tmp_path / ("x" * 300), [folder], BuildSettings())


def test_vectors_in_int8_are_close_and_small(folder: Path, tmp_path: Path, index: Index) -> None:
    encoder = HashedWords()
    update_folders(tmp_path / "small", [folder], BuildSettings(encoder=encoder, dtype="int8"))
    small = Index(tmp_path / "small", model=encoder)
    pairs = zip(*(one.search("cats eat", mode="vectors") for one in (small, index)), strict=True)
    assert all(abs(a.score - b.score) < 5e-3 for a, b in pairs)
    sizes = [
        sum(p.stat().st_size for p in current(one.path).glob("*.npy")) for one in (small, index)
    ]
    assert sizes[0] < sizes[1] / 2
    [(_, vectors)] = small.portions()
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    for number in range(12):  # many small segments are merged without a second rounding
        small.add([{"id": f"n{number}", "text": f"a note on cats, number {number}"}])
    [(_, merged)] = small.portions()
    np.testing.assert_array_equal(merged[: len(vectors)], vectors)
    small.check()


def test_empty_vectors_in_int8_stay_zero() -> None:
    vectors = np.array([[0, 0, 0], [0.6, -0.8, 0]], np.float32)
    kept = unit_vectors(stored(vectors, "int8").astype(np.int8))
    np.testing.assert_allclose(kept, vectors, atol=5e-3)
    assert not kept[0].any()
