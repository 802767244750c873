"""Files: whole or untouched, whatever happens; locks; one-line errors."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import lzma
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith import files, folders
from bertsmith.errors import BertsmithError
from entries import FULL, entries, full_disk, refused

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),  # half surrogate pairs too
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


not_for_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, FULL, "file"), FULL),
        (OSError("5 requested and\n3 written"), "5 requested and 3 written"),
        (ValueError(), "ValueError"),
        (OSError(), "OSError"),
        (ValueError("x" * 1000), "x" * 200 + "…"),
    ],
)
def test_cause(error: Exception, expected: str) -> None:
    assert files.cause(error) == expected


def test_writing_and_reading_name_the_file_and_the_cause(tmp_path: Path) -> None:
    def fails(manager: Callable[[str], Any], error: BaseException) -> Callable[[], None]:
        def call() -> None:
            with manager("a/b"):
                raise error

        return call

    assert refused(fails(files.writing, OSError(errno.ENOSPC, FULL))) == (
        f"a/b: cannot be written ({FULL})"
    )
    assert refused(fails(files.writing, OSError("odd"))) == "a/b: cannot be written (odd)"
    assert refused(fails(files.reading, EOFError("cut"))) == "a/b: cannot be read (cut)"
    assert refused(fails(files.writing, BertsmithError("mine"))) == "mine"
    with pytest.raises(ZeroDivisionError), files.writing("a/b"):
        raise ZeroDivisionError


# ------------------------------------------------------------------ one file


@settings(max_examples=40)
@given(st.binary(), st.binary(), st.sampled_from([OSError, ValueError, KeyboardInterrupt, None]))
def test_atomic_is_all_or_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    old: bytes,
    new: bytes,
    error: type[BaseException] | None,
) -> None:
    folder = tmp_path_factory.mktemp("atomic")
    (folder / "a").write_bytes(old)

    def write() -> None:
        with files.atomic(folder / "a") as stream:
            stream.write(new)
            if error is not None:
                stream.flush()
                raise error

    if error is None:
        write()
    else:
        with pytest.raises(BertsmithError if error is OSError else error):
            write()
    assert entries(folder) == {"a": new if error is None else old}


@pytest.mark.parametrize("before", [None, b"old"])
def test_a_full_disk_is_one_line(
    before: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    if before is not None:
        path.write_bytes(before)
    with full_disk(monkeypatch):
        for write, content in (
            (files.write_bytes, b"new"),
            (files.write_text, "new"),
            (files.write_json, {}),
        ):
            message = refused(lambda: write(path, content))  # type: ignore[operator]  # noqa: B023
            assert message == f"{path}: cannot be written ({FULL})"
    assert entries(tmp_path) == ({} if before is None else {"a.json": before})


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
def test_a_device_that_is_full() -> None:
    assert refused(lambda: files.write_text("/dev/full", "x")).endswith(f"({FULL})")


@not_for_root
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o555)
    path = folder / "a"
    assert refused(lambda: files.write_text(path, "x")) == (
        f"{path}: cannot be written (Permission denied)"
    )
    assert "Permission denied" in refused(lambda: folders.write_directory(path, lambda part: None))
    (tmp_path / "a").write_text("old")
    (tmp_path / "a").chmod(0o444)  # renaming could replace it; its owner did not want that
    assert "Permission denied" in refused(lambda: files.write_text(tmp_path / "a", "new"))


@pytest.mark.parametrize(
    ("name", "why"), [("", "Is a directory"), ("no/a", "No such file"), ("a/b", "Not a directory")]
)
def test_places_that_cannot_be_written(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    message = refused(lambda: files.write_text(tmp_path / name, "x"))
    assert message.startswith(f"{tmp_path / name}: cannot be written ({why}")
    assert entries(tmp_path) == {"a": b"a file"}


def test_permissions_links_and_long_names(tmp_path: Path) -> None:
    path = tmp_path / "a"
    files.write_text(path, "1")
    plain = tmp_path / "plain"
    plain.write_text("1")
    assert path.stat().st_mode == plain.stat().st_mode
    path.chmod(0o600)
    (tmp_path / "link").symlink_to("a")
    files.write_text(tmp_path / "link", "2")
    assert (tmp_path / "link").is_symlink()
    assert path.read_text() == "2"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    longest = tmp_path / ("ü" * 127)  # 254 bytes
    files.write_text(longest, "3")
    assert longest.read_text() == "3"


def test_text_is_written_as_it_is(tmp_path: Path) -> None:
    with files.atomic(tmp_path / "a", "w") as stream:
        stream.write("é\r\nb\n")
    assert (tmp_path / "a").read_bytes() == b"\xc3\xa9\r\nb\n"


def test_a_device_is_written_not_replaced() -> None:
    files.write_text(os.devnull, "x")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)  # noqa: PTH116 - a device


def test_threads_that_write_one_file(tmp_path: Path) -> None:
    start = Barrier(8)

    def write(number: int) -> None:
        start.wait()
        for _ in range(10):
            files.write_bytes(tmp_path / "a", bytes([number]) * 100_000)

    threads = [Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ((name, content),) = entries(tmp_path).items()
    assert name == "a"
    assert len(content) == 100_000
    assert len(set(content)) == 1


WRITER = """
import sys
from bertsmith import files, folders
for _ in range(50):
    files.write_bytes(sys.argv[1], sys.argv[2].encode() * 100_000)
"""


def test_processes_that_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, letter]) for letter in ("x", "y")
    ]
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            assert path.read_bytes() in (b"x" * 100_000, b"y" * 100_000)
    assert [writer.returncode for writer in writers] == [0, 0]
    assert list(entries(tmp_path)) == ["a"]


def test_sweep_removes_only_what_a_killed_writer_left(tmp_path: Path) -> None:
    kept = [".hidden", "a.part", ".b.part", ".c-xyz.part"]
    for name in kept:
        (tmp_path / name).write_text(name)
    code = (
        "import os, signal, sys; from bertsmith import files\n"
        "with files.atomic(sys.argv[1]) as stream:\n"
        "    stream.write(b'half')\n"
        "    stream.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "a"])
    assert done.returncode == -signal.SIGKILL
    assert len(entries(tmp_path)) == len(kept) + 1
    files.sweep(tmp_path)
    assert sorted(entries(tmp_path)) == sorted(kept)


@settings(max_examples=100)
@given(JSON)
def test_json_comes_back(tmp_path_factory: pytest.TempPathFactory, content: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "content.json"
    files.write_json(path, content)
    text = path.read_text("utf-8")
    assert json.loads(text) == content
    assert text.endswith("\n")


@settings(max_examples=30)
@given(JSON, st.sampled_from([float("nan"), float("inf"), float("-inf")]))
def test_nan_is_refused(
    tmp_path_factory: pytest.TempPathFactory, content: Any, number: float
) -> None:
    path = tmp_path_factory.getbasetemp() / "nan.json"
    path.write_text("old")
    message = refused(lambda: files.write_json(path, [content, {"loss": number}]))
    assert message.startswith(f"{path}: cannot be written (Out of range float values")
    assert path.read_text() == "old"


def test_json_that_people_read(tmp_path: Path) -> None:
    files.write_json(tmp_path / "a", {"b": ["é"], "a": 1})
    assert (tmp_path / "a").read_text("utf-8") == '{\n  "b": [\n    "é"\n  ],\n  "a": 1\n}\n'


def test_digest(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    (tmp_path / "a").write_bytes(data)
    assert files.digest(tmp_path / "a") == hashlib.sha256(data).hexdigest()


def test_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("x")
    files.sync(tmp_path / "a")
    files.sync(tmp_path)
    with pytest.raises(FileNotFoundError):
        files.sync(tmp_path / "b")

    def unsupported(descriptor: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", unsupported)
    files.sync(tmp_path)  # as on some network file systems


def test_reads_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"one\n" + b"x" * 3_000_000 + b"\ntwo"))
    assert [len(line) for line in files.read_lines(path)] == [4, 3_000_001, 3]
    assert len(files.read_whole(path)) == 3_000_008
    with pytest.raises(BertsmithError, match=r"text\.gz, line 2: longer than 1 MiB"):
        list(files.read_lines(path, longest=1 << 20))
    with pytest.raises(BertsmithError, match="more than 2 MiB, too much to read at once"):
        files.read_whole(path, limit=2 << 20)


def test_what_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "old")
    for name in ("new", "old", "link"):
        files.check_writable(tmp_path / name)
    files.check_writable(os.devnull)
    assert entries(tmp_path) == {"old": b"old", "link": b"old"}


@pytest.mark.parametrize("name", ["", "file/x", "new/x", "x" * 300])
def test_what_cannot_be_written_is_found_early(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    line = refused(lambda: files.check_writable(tmp_path / name))
    assert "cannot be written (" in line
    assert "\n" not in line
    assert entries(tmp_path) == {"file": b""}


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_disks_that_cannot_be_written_are_found_early(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "TemporaryFile", fail)
    line = refused(lambda: files.check_writable(tmp_path / "x"))
    assert os.strerror(number) in line


# ------------------------------------------------------------------ what is opened


def test_pipes_are_read_if_something_writes_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "WRITER_SECONDS", 0.05)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert "a pipe that nothing writes to" in refused(lambda: files.read_whole(path))
    monkeypatch.setattr(files, "WRITER_SECONDS", 10.0)
    for text in (b"", b"x", b"some text\n" * 20_000):

        def write(text: bytes = text) -> None:
            with path.open("wb") as stream:
                if text:
                    stream.write(text)
                else:
                    stream.write(b" ")

        writer = Thread(target=write)
        writer.start()
        assert files.read_whole(path) == (text or b" ")
        writer.join()


def test_a_shell_may_substitute_a_process() -> None:
    command = "import sys; from bertsmith.files import read_whole; print(read_whole(sys.argv[1]))"
    words = ["bash", "-c", f'{sys.executable} -c "{command}" <(echo one; sleep 0.1; echo two)']
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout == "b'one\\ntwo\\n'\n"


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/full"])
def test_devices_are_not_read(name: str) -> None:
    assert "not a regular file" in refused(lambda: files.read_whole(name))


def test_a_folder_is_not_read(tmp_path: Path) -> None:
    assert "Is a directory" in refused(lambda: files.read_whole(tmp_path))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_compressed_bombs_are_refused(suffix: str, tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    packers = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}
    bomb, large = tmp_path / f"bomb.txt{suffix}", tmp_path / f"large.txt{suffix}"
    bomb.write_bytes(packers[suffix](bytes(40 << 20)))
    noise = os.urandom(100_000)
    large.write_bytes(packers[suffix](noise + bytes(12 << 20)))  # above no bound
    with pytest.raises(BertsmithError, match="decompresses to more than 300 times its size"):
        files.read_whole(bomb)
    assert files.read_whole(large)[:100_000] == noise


def test_half_characters_are_escaped(tmp_path: Path) -> None:
    """As in file names that are not UTF-8, which reports and cards repeat."""
    files.write_text(tmp_path / "a", "\udcff.csv")
    with files.atomic(tmp_path / "b", "w") as stream:
        stream.write("\udcff.csv")
    for name in ("a", "b"):
        assert (tmp_path / name).read_text("utf-8") == "\\udcff.csv"
