import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.errors import BertsmithError
from bertsmith.files import write_text
from bertsmith.folders import (
    check_output,
    check_replaceable,
    marking,
    replace_directory,
    reserved,
)


def files(**contents: str) -> Callable[[Path], None]:
    """A function that writes these files."""

    def write(folder: Path) -> None:
        for name, content in contents.items():
            path = folder / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            write_text(path, content)

    return write


def held(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


# ------------------------------------------------------------------ what may be replaced


def test_only_what_bertsmith_wrote_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    replace_directory(out, files(a="1", sub__b="2"))
    with pytest.raises(BertsmithError, match="name another folder, or use overwrite=True"):
        replace_directory(out, files(a="3"))
    replace_directory(out, files(a="3"), overwrite=True)
    assert held(out).keys() == {"a", "bertsmith.json"}
    (out / "mine").write_text("x")
    before = held(out)
    with pytest.raises(BertsmithError, match="replaces only what bertsmith wrote, but mine is"):
        replace_directory(out, files(a="4"), overwrite=True)
    assert held(out) == before


@pytest.mark.parametrize(
    "marker",
    ["", "{", "[]", "null", '{"version": "1"}', '{"files": 3}', '{"files": ["a"]}', "[" * 10_000],
)
def test_a_marker_that_says_nothing_protects(marker: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("mine")
    (tmp_path / "bertsmith.json").write_text(marker)
    with pytest.raises(BertsmithError, match=r"it has no bertsmith.json with a list of its files"):
        check_replaceable(tmp_path, overwrite=True)


@settings(max_examples=40, deadline=None)
@given(
    foreign=st.dictionaries(
        st.sampled_from(["a", "notes.txt", ".git/config", "sub/b", "sub/deep/er"]),
        st.sampled_from(["1", "mine"]),
        min_size=1,
    )
)
def test_no_file_of_a_person_is_lost(
    foreign: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Files that were added or changed are never replaced; equal ones may be."""
    out = tmp_path_factory.mktemp("x") / "out"
    replace_directory(out, files(a="1", sub__b="1"))
    for name, content in foreign.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(content)
    before = held(out)
    same = all(name in ("a", "sub/b") and text == "1" for name, text in foreign.items())
    if same:
        replace_directory(out, files(c="2"), overwrite=True)
        assert "c" in held(out)
        return
    with pytest.raises(BertsmithError, match="replaces only what bertsmith wrote"):
        replace_directory(out, files(c="2"), overwrite=True)
    assert held(out) == before


def test_links_and_files_in_the_way(tmp_path: Path) -> None:
    out = tmp_path / "out"
    replace_directory(out, files(a="1"))
    (out / "a").unlink()
    (out / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BertsmithError, match="a was changed since"):
        check_replaceable(out, overwrite=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(BertsmithError, match="a file of this name exists"):
        check_replaceable(tmp_path / "file", overwrite=True)


def test_what_appears_during_the_work_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def write(folder: Path) -> None:
        files(a="1")(folder)
        out.mkdir()
        (out / "mine").write_text("x")

    with pytest.raises(BertsmithError, match="not empty"):
        replace_directory(out, write)
    assert held(out) == {"mine": b"x"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_failure_leaves_the_old_directory(tmp_path: Path) -> None:
    out = tmp_path / "out"
    replace_directory(out, files(a="1"))
    before = held(out)

    def fail(folder: Path) -> None:
        files(a="2")(folder)
        raise OSError(28, "No space left on device")

    with pytest.raises(BertsmithError, match="cannot be written"):
        replace_directory(out, fail, overwrite=True)
    assert held(out) == before


def test_marking_lists_only_what_was_added(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with marking(tmp_path):
        files(a="1")(tmp_path)
    with pytest.raises(BertsmithError, match="mine is another file"):
        check_replaceable(tmp_path, overwrite=True)
    (tmp_path / "mine").unlink()
    with marking(tmp_path):  # written again, it is still bertsmith's
        files(a="2")(tmp_path)
    check_replaceable(tmp_path, overwrite=True)


# ------------------------------------------------------------------ before the work


def test_names_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for name, fault in (("x" * 300, "File name too long"), ("file/a/b", "is not a folder")):
        for check in (check_output, check_replaceable):
            with pytest.raises(BertsmithError, match=f"cannot be written .*{fault}"):
                check(tmp_path / name)
    check_output(tmp_path / "new" / "folder" / "file")
    assert not (tmp_path / "new").exists()
    check_output("/dev/null")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    for path in (folder / "a", folder / "a" / "b"):
        with pytest.raises(BertsmithError, match="cannot be written"):
            check_output(path)


def test_a_full_disk_is_found_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> object:
        return open("/dev/full", "wb")  # noqa: PTH123

    monkeypatch.setattr("bertsmith.files.TemporaryFile", full)
    with pytest.raises(BertsmithError, match="No space left"):
        check_output(tmp_path / "a")


# ------------------------------------------------------------------ two writers


HOLD = """
import sys
from bertsmith.folders import reserved
with reserved(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_writer_of_one_name_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    command = [sys.executable, "-c", HOLD, str(out)]
    first = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout
    assert first.stdout.readline() == "held\n"
    with (
        pytest.raises(BertsmithError, match="another bertsmith process is working in it"),
        reserved(out),
    ):
        pass
    with reserved(tmp_path / "new" / "other"):
        pass
    first.kill()
    first.communicate()
    with reserved(out):
        replace_directory(out, files(a="1"))
    assert {path.name for path in out.parent.iterdir()} == {"out"}
