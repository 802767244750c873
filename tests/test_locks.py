"""One process at a time: locks of files and folders."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from threading import Barrier, Thread
from typing import IO

import pytest

from bertsmith import files
from bertsmith.errors import BertsmithError
from entries import refused

HOLDER = """
import sys, time
from bertsmith import files, folders
with files.locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def hold(folder: Path) -> subprocess.Popen[bytes]:
    """Another process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, folder], stdout=subprocess.PIPE)
    stream: IO[bytes] | None = process.stdout
    assert stream is not None
    assert stream.readline() == b"held\n"
    return process


def enter(folder: Path) -> None:
    with files.locked(folder):
        pass


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    other = hold(folder)
    try:
        for _ in range(2):
            assert refused(lambda: enter(folder)) == (
                f"{folder}: another bertsmith process is working in it"
            )
    finally:
        other.kill()
        other.communicate()
    enter(folder)
    assert list(folder.iterdir()) == []


def test_the_lock_is_released_by_the_end_and_by_errors(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), files.locked(tmp_path):
        raise ZeroDivisionError
    with files.locked(tmp_path):
        assert "another bertsmith process" in refused(lambda: enter(tmp_path))
        assert (tmp_path / ".lock").exists()
    enter(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_only_one_of_many_has_the_lock(tmp_path: Path) -> None:
    """The file is removed and made again all the time, and never do two hold it."""
    inside, most, entered, done = [0], [0], [0], Barrier(6)

    def work() -> None:
        for _ in range(200):
            try:
                with files.locked(tmp_path):
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    entered[0] += 1
                    inside[0] -= 1
            except BertsmithError:
                pass
        done.wait()

    threads = [Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert entered[0] > 0


def test_file_systems_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(handle: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", flock)
    enter(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_locked(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    assert "cannot be written" in refused(lambda: enter(tmp_path / "a"))
