"""Standard output that is full, closed or read no further; Ctrl-C at any time."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = [sys.executable, "-m", "bertsmith.cli"]
SHOW = ["tokenizer", "show", "bertsmith-small", "a text of words"]
VERBS = [["recipes"], SHOW]


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_a_full_output_is_one_line(words: list[str]) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run([*PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    expected = "bertsmith: standard output cannot be written (No space left on device)\n"
    assert done.stderr == expected


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_an_output_that_nobody_reads_is_no_mistake(words: list[str]) -> None:
    """As in `| head`: the other end is closed before anything is written."""
    running = subprocess.Popen(
        [*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout
    assert running.stderr
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait() == 0


def test_no_output_at_all() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(PROGRAM)} recipes >&-"], stderr=subprocess.PIPE, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("seconds", [0.1, 2.0])
def test_ctrl_c_is_one_line(seconds: float) -> None:
    """While modules are imported, and while the verb waits for its input."""
    code = f"""
import os, signal, sys, threading
from bertsmith.cli import main
sys.argv = ["bertsmith", "fill-mask", "bertsmith-small"]
threading.Timer({seconds}, os.kill, (os.getpid(), signal.SIGINT)).start()
main()
"""
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = subprocess.Popen([sys.executable, "-c", code], text=True, **pipes)  # type: ignore[call-overload]
    running.wait(timeout=60)
    err = running.stderr.read()
    assert err == "bertsmith: interrupted\n"
    assert running.returncode == 130
