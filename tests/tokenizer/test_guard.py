"""What keeps stderr clean while the library may panic, also where several threads load."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from bertsmith.tokenizer.guard import hushed

THREADS = 8


def on_stderr() -> tuple[int, int]:
    """Which file stderr is."""
    state = os.fstat(2)
    return state.st_dev, state.st_ino


def free_descriptor() -> int:
    """The lowest number that no open file has."""
    handle = os.dup(2)
    os.close(handle)
    return handle


def test_threads_that_overlap_leave_stderr_as_it_was(tmp_path: Path) -> None:
    # In a process of its own: a stderr that was left closed breaks whatever runs there next.
    script = tmp_path / "threads.py"
    script.write_text(
        "import os, sys\n"
        "from threading import Barrier, Thread\n"
        "from bertsmith.tokenizer.guard import hushed\n"
        "inside, first_left = Barrier(2), Barrier(2)\n"
        "def first():\n"
        "    with hushed():\n"
        "        inside.wait()\n"
        "    first_left.wait()\n"
        "def second():\n"
        "    with hushed():\n"
        "        inside.wait()\n"
        "        first_left.wait()\n"
        "        os.write(2, b'not to be seen')\n"
        "threads = [Thread(target=first), Thread(target=second)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "os.write(2, b'seen')\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"seen")


def test_many_threads(capfd: pytest.CaptureFixture[str]) -> None:
    before, free = on_stderr(), free_descriptor()
    start = Barrier(THREADS)

    def work(number: int) -> None:
        start.wait()
        for _ in range(200):
            with hushed():
                os.write(2, b"not to be seen")

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    assert on_stderr() == before
    assert free_descriptor() == free, "none is left open"
    os.write(2, b"seen")
    assert capfd.readouterr().err == "seen"


def test_an_error_inside_restores_it() -> None:
    before = on_stderr()
    with pytest.raises(KeyboardInterrupt), hushed(), hushed():
        raise KeyboardInterrupt
    assert on_stderr() == before


def test_a_process_without_stderr() -> None:
    code = (
        "import os; os.close(2)\n"
        "from bertsmith.tokenizer.guard import hushed\n"
        "with hushed(): print('fine')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"fine\n")
