"""A reader that stays open while another process updates the index."""

import multiprocessing
import random
import shutil
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import bertsmith as bs
from bertsmith.search.build import BuildSettings, update_folders
from bertsmith.search.index import Index
from search.conftest import HashedWords
from serve.live import serving, tiny

Write = Callable[[dict[str, Any]], None]


def write(orders: Connection) -> None:
    """Update indexes in a process of its own, on request."""
    while (order := orders.recv()) is not None:
        place, options = order
        settings = BuildSettings(encoder=HashedWords())
        update_folders(place / "index", [place / "documents"], settings, **options)
        orders.send("done")


@pytest.fixture(scope="module")
def other_process() -> Iterator[Connection]:
    spawn = multiprocessing.get_context("spawn")  # a forked process would share our connections
    here, there = spawn.Pipe()
    process = spawn.Process(target=write, args=(there,), daemon=True)
    process.start()
    there.close()  # so that an error over there ends the test here
    yield here
    here.send(None)
    process.join()


@pytest.fixture
def writer(tmp_path: Path, other_process: Connection) -> Write:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "kept.txt").write_text("This file stays.")

    def update(options: dict[str, Any]) -> None:
        other_process.send((tmp_path, options))
        assert other_process.recv() == "done"

    update({})
    return update


def codes(index: Index, mode: str) -> dict[str, str]:
    hits = index.search("the code of the gate", 50, mode=mode)
    return {Path(hit.file).name: hit.text for hit in hits if "gate" in hit.text}


@pytest.mark.parametrize("rounds", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_a_reader_sees_every_update(tmp_path: Path, writer: Write, rounds: int) -> None:
    rng = random.Random(0)
    folder = tmp_path / "documents"
    expected: dict[str, str] = {}
    with Index(tmp_path / "index", model=HashedWords()) as index:
        for number in range(rounds):
            name = f"gate{rng.randrange(6)}.txt"
            if expected and rng.random() < 0.4:
                name = rng.choice(sorted(expected))
                (folder / name).unlink()
                del expected[name]
            else:
                expected[name] = f"The code of the gate is {number}, says {name}."
                (folder / name).write_text(expected[name])
            writer({"re_embed": True} if number % 25 == 24 else {})
            for mode in ("keywords", "vectors"):
                assert codes(index, mode) == expected
            assert index.about["files"] == len(expected) + 1
            if number % 10 == 9:
                index.check()
                index.close()
                index = Index(tmp_path / "index", model=HashedWords())


def test_a_server_follows_its_index(tmp_path: Path, writer: Write) -> None:
    """An update is served at once; an index that fails makes the server not ready."""
    index = bs.Index(tmp_path / "index", model=HashedWords())
    with serving({"tiny": tiny()}, index=index) as http:

        def search() -> tuple[int, list[str]]:
            reply = http.post("/search", json={"query": "whales"})
            return reply.status_code, [hit["text"] for hit in reply.json().get("results", [])]

        assert http.get("/ready").status_code == 200
        for number in range(5):
            text = f"Whales of round {number}."
            (tmp_path / "documents" / "whales.txt").write_text(text)
            writer({})
            assert search()[1][0] == text
        (tmp_path / "documents" / "whales.txt").unlink()
        writer({})
        assert not any("Whales" in text for text in search()[1])
        shutil.move(tmp_path / "index", tmp_path / "elsewhere")
        assert http.get("/ready").status_code == 503
        assert search()[0] == 503
        assert http.get("/live").status_code == 200
        shutil.move(tmp_path / "elsewhere", tmp_path / "index")
        assert http.get("/ready").status_code == 200
        for segment in (tmp_path / "index").glob("*/*.npy"):
            segment.unlink()
        assert search()[0] == 200  # the vectors are in memory
    index.close()
    with serving({"tiny": tiny()}, index=bs.Index(tmp_path / "index", model=HashedWords())) as http:
        reply = http.get("/ready")
        assert reply.status_code == 503
        assert "rebuilds it from the text" in reply.json()["error"]
        writer({})  # repairs the vectors
        assert http.get("/ready").status_code == 200


def test_a_reader_that_may_not_write(
    tmp_path: Path, writer: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that a reader cannot write to may be updated by others nevertheless."""
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    with Index(tmp_path / "index", model=HashedWords()) as index:
        for number in range(5):
            text = f"The code of the gate is {number}."
            (tmp_path / "documents" / "gate.txt").write_text(text)
            writer({})
            assert codes(index, "keywords") == {"gate.txt": text}
