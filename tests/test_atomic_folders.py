"""A folder is replaced wholly or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bertsmith import files, folders
from bertsmith.errors import BertsmithError
from entries import FULL, entries, full_disk, refused


def fill(**contents: str) -> Callable[[Path], None]:
    """A function that writes these files into a folder, and one in a sub-folder."""

    def write(part: Path) -> None:
        (part / "below").mkdir()
        for name, content in contents.items():
            (part / name).write_text(content)
            (part / "below" / name).write_text(content)

    return write


@pytest.mark.parametrize("name", ["model", "old", "new", "a.b", "ü" * 120])
def test_a_folder_is_replaced_wholly(name: str, tmp_path: Path) -> None:
    out = tmp_path / "made" / name
    names = []
    folders.write_directory(out, lambda part: names.append(part.name))
    assert names == [name], "what is written may say the folder's name"
    folders.write_directory(out, fill(a="1", b="1"))
    folders.write_directory(out, fill(b="2", c="2"))
    assert entries(out) == dict.fromkeys(["b", "c", "below/b", "below/c"], b"2")
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, FULL), ValueError(), KeyboardInterrupt()])
def test_a_folder_that_fails_stays_as_it_was(error: BaseException, tmp_path: Path) -> None:
    out = tmp_path / "model"
    folders.write_directory(out, fill(a="1"))
    before = entries(tmp_path)

    def write(part: Path) -> None:
        (part / "a").write_text("2")
        raise error

    expected = BertsmithError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected):
        folders.write_directory(out, write)
    with pytest.raises(expected):
        folders.write_into(out, write)
    assert entries(tmp_path) == before
    assert list(tmp_path.iterdir()) == [out]


def test_errors_name_the_folder_not_its_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model"

    def write(part: Path) -> None:
        files.write_json(part / "report.json", {})

    for call in (folders.write_directory, folders.write_into):
        with full_disk(monkeypatch):
            message = refused(lambda: call(out, write))  # noqa: B023
        assert message == f"{out / 'report.json'}: cannot be written ({FULL})"


def test_a_rename_that_fails_brings_the_old_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "model"
    folders.write_directory(out, fill(a="1"))
    before = entries(tmp_path)
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if self.parent.name == "new":
            raise KeyboardInterrupt
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        folders.write_directory(out, fill(a="2"))
    assert entries(tmp_path) == before


def test_the_current_directory_is_filled_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "former").mkdir()
    (tmp_path / "former" / "a").write_text("0")
    (tmp_path / "a").write_text("0")
    (tmp_path / "gone").write_text("0")
    monkeypatch.chdir(tmp_path)
    inode = tmp_path.stat().st_ino
    folders.write_directory(".", fill(a="1"))
    assert entries(tmp_path) == {"a": b"1", "below/a": b"1"}
    assert sorted(os.listdir()) == ["a", "below"]  # noqa: PTH208 - the current one, still there
    assert tmp_path.stat().st_ino == inode


def test_a_folder_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "model").symlink_to("disk")
    folders.write_directory(tmp_path / "model", fill(a="1"))
    assert (tmp_path / "model").is_symlink()
    assert entries(tmp_path / "disk") == {"a": b"1", "below/a": b"1"}


def test_into_a_folder_others_stay(tmp_path: Path) -> None:
    folders.write_directory(tmp_path / "model", fill(a="1", b="1"))
    names = folders.write_into(tmp_path / "model", fill(a="2"))
    assert names == {"a", "below"}
    assert entries(tmp_path / "model") == {"a": b"2", "b": b"1", "below/a": b"2"}


def test_a_file_does_not_replace_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "kept").write_text("1")
    assert "Is a directory" in refused(lambda: folders.write_into(tmp_path, fill(a="2")))
    assert entries(tmp_path) == {"a/kept": b"1"}
