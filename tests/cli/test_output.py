"""Standard output that is full, closed or read no further; Ctrl-C at any time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


CLOSED = [
    "recipes",
    "tokenizer show bertsmith-small words",
    "fill-mask bertsmith-small --json '[MASK] text'",
    "embed bertsmith-small --json 'a text'",
    "heads bertsmith-small lines.txt",
    "check lines.csv",
]


@pytest.mark.parametrize("words", CLOSED)
def test_no_output_at_all(words: str, tmp_path: Path) -> None:
    closed = "<&- >&- 2>&-" if words == "recipes" else ">&-"
    (tmp_path / "lines.txt").write_text("The river flows.\nA storm tore the roof off.\n")
    (tmp_path / "lines.csv").write_text("text,label\n" + "a river,x\na storm,y\n" * 6)
    command = f"{' '.join(PROGRAM)} {words} {closed}"
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1)  # a check may have findings


def test_a_limit_on_the_size_of_files_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("The river flows to the sea.\n" * 40)
    command = f"ulimit -f 0; {' '.join(PROGRAM)} senses bertsmith-small the lines.txt > out.txt"
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    expected = "bertsmith: standard output cannot be written (File too large)\n"
    assert (done.returncode, done.stderr) == (2, expected)


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
