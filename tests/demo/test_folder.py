"""Whose folder it is."""

import json
from pathlib import Path

import pytest

from bertsmith.demo.folder import MADE, MARK, begin, check, write_mark
from bertsmith.errors import BertsmithError


def test_a_new_and_an_empty_folder_are_taken(tmp_path: Path) -> None:
    for out in (tmp_path, tmp_path.with_name("new") / "demo"):
        check(out, None)
        begin(out)
        check(out, None)
        assert json.loads((out / MARK).read_text()) == {
            "made_by": "bertsmith demo",
            "finished": False,
        }


@pytest.mark.parametrize("mark", [None, "{", "[]", '{"made_by": "someone else"}'])
def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path, mark: str | None) -> None:
    (tmp_path / "index.html").write_text("mine")
    if mark is not None:
        (tmp_path / MARK).write_text(mark)
    with pytest.raises(BertsmithError, match="not made by this command; choose another out"):
        check(tmp_path, None)
    assert (tmp_path / "index.html").read_text() == "mine"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("")
    with pytest.raises(BertsmithError, match="is a file"):
        check(tmp_path / "demo", None)


def test_only_what_was_made_is_cleared(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept.txt").write_text("kept")
    out = tmp_path / "demo"
    begin(out)
    (out / "notes.txt").write_text("kept")
    (out / "corpus").symlink_to(elsewhere)
    for name in set(MADE) - {"corpus"}:
        (out / name).mkdir()
    write_mark(out, {"finished": True})
    begin(out)
    assert {path.name for path in out.iterdir()} == {MARK, "notes.txt"}
    assert (elsewhere / "kept.txt").exists()


def test_text_must_be_there(tmp_path: Path) -> None:
    check(tmp_path / "demo", tmp_path)
    with pytest.raises(BertsmithError, match="no such folder"):
        check(tmp_path / "demo", tmp_path / "nowhere")
