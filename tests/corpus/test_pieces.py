"""Pieces are whole documents, all of them, whatever the file looks like."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.corpus import pieces
from bertsmith.corpus.documents import read_documents
from bertsmith.corpus.files import find_files
from bertsmith.corpus.pieces import Piece, cut
from bertsmith.ledger import Ledger
from corpus.texts import as_text, documents, write

LINES = st.lists(st.sampled_from(["", " ", "\t", "a", "bb c", "é", "漢字", "x" * 40]), max_size=40)


def pieces_of(path: Path, size: int) -> list[Piece]:
    return list(cut(find_files([path])[0], size, "text"))


def documents_of(found: list[Piece]) -> list[list[str]]:
    parts = [part for piece in found for part in piece.parts]
    return [document for part in parts for document in read_documents(part, "text", Ledger())]


@settings(max_examples=150, deadline=None)
@given(LINES, st.integers(1, 90), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_no_document_is_cut_or_lost(lines: list[str], size: int, end: str, last: bool) -> None:
    path = Path(TMP) / "a.txt"
    text = end.join(lines) + end * last
    path.write_bytes(text.encode())
    found = pieces_of(path, size)
    assert b"".join(part.data for piece in found for part in piece.parts) == text.encode()
    assert [piece.number for piece in found] == list(range(len(found)))
    stripped = "\n".join(line.strip() for line in text.split("\n"))
    wanted = [part.strip("\n").split("\n") for part in re.split(r"\n\n+", stripped)]
    assert documents_of(found) == [document for document in wanted if document != [""]]
    for part in (part for piece in found for part in piece.parts):
        before = text.encode()[: text.encode().index(part.data)] if len(found) == 1 else None
        assert before is None or part.line == before.count(b"\n") + 1


@pytest.fixture(autouse=True)
def _place(tmp_path_factory: pytest.TempPathFactory) -> None:
    global TMP
    TMP = str(tmp_path_factory.mktemp("pieces"))


TMP = ""


def test_pieces_are_of_about_the_size_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", documents(400))
    sizes = [sum(len(p.data) for p in piece.parts) for piece in pieces_of(path, 5000)]
    assert max(sizes) <= 5000
    assert sum(sizes) / len(sizes) > 4000


def test_small_files_share_a_piece(tmp_path: Path) -> None:
    given = documents(100)
    for number, document in enumerate(given):
        write(tmp_path / f"{number:03}.txt", [document])
    found = pieces_of(tmp_path, 1 << 20)
    assert len(found) == 1
    assert documents_of(found) == given
    assert found[-1].position == sum(path.stat().st_size for path in tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt.xz", "a.txt.zst", "a.jsonl", "a.parquet"])
def test_progress_goes_from_nothing_to_all(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, documents(2000))
    places = [piece.position for piece in pieces_of(path, 20_000)]
    assert places == sorted(places)
    assert places[-1] == path.stat().st_size
    assert len(places) > 5


@pytest.mark.parametrize("between", ["\n", " ", ""])
def test_documents_too_large_for_memory_are_cut(
    between: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "LARGEST", 3000)
    monkeypatch.setattr(pieces, "BLOCK", 500)
    text = between.join(["Krakó漢w"] * 2000)
    (tmp_path / "a.txt").write_text(f"First.\n\n{text}\n\nLast.\n", "utf-8")
    found = pieces_of(tmp_path / "a.txt", 100)
    assert max(len(part.data) for piece in found for part in piece.parts) <= 3500
    read = documents_of(found)
    assert read[0] == ["First."]
    assert read[-1] == ["Last."]
    middle = [line for document in read[1:-1] for line in document]
    assert between.join(middle) == text.strip()
    assert sum(part.cut_off for piece in found for part in piece.parts) == len(read) - 3


def test_a_file_is_one_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "LARGEST", 3000)
    large = ["Krakó漢w " * 200, "b" * 100] * 3
    given = [["One.", "Two."], large, ["Three."]]
    for number, document in enumerate(given):
        (tmp_path / f"{number}.txt").write_text("\n \n".join(document) + "\n", "utf-8")
    (tmp_path / "3.txt").write_text("\n\n")
    (tmp_path / "4.txt").write_text("x" * 3000)  # the largest that is kept whole
    files = [replace(one, kind="whole") for one in find_files([tmp_path])[0]]
    found = list(cut(files, 100, "text"))
    read = documents_of(found)
    assert (read[0], read[-2], read[-1]) == (given[0], given[-1], ["x" * 3000])
    middle = [line for document in read[1:-2] for line in document]
    assert "".join(middle).replace(" ", "") == "".join(large).replace(" ", "")
    cuts = sum(part.cut_off for piece in found for part in piece.parts)
    assert cuts == len(read) - 4 > 0


def test_a_document_of_many_pieces_stays_whole(tmp_path: Path) -> None:
    given = [["a" * 5_000_000, "b" * 100], ["c"]]
    (tmp_path / "a.txt").write_text(as_text(given))
    assert documents_of(pieces_of(tmp_path / "a.txt", 1000)) == given
