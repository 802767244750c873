"""Standard output that is full, closed or read no further; Ctrl-C at any time."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from processes import CLOSED, python

PROGRAM = [sys.executable, "-m", "bertsmith.cli"]
SHOW = ["tokenizer", "show", "bertsmith-small", "a text of words"]
VERBS = [["recipes"], SHOW]


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_a_full_output_is_one_line(words: list[str]) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        running = python(*PROGRAM[1:], *words, stdout=full, stderr=subprocess.PIPE, text=True)
    _, err = running.communicate()
    assert running.returncode == 2
    assert err == "bertsmith: standard output cannot be written (No space left on device)\n"


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_an_output_that_nobody_reads_is_no_mistake(words: list[str]) -> None:
    """As in `| head`: the other end is closed before anything is written."""
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    running = python(*PROGRAM[1:], *words, text=True, **pipes)
    assert running.stdout
    assert running.stderr
    running.stdout.close()
    assert running.stderr.read() == ""
    assert running.wait() == 0


SILENT = [
    "tokenizer show bertsmith-small words",
    "fill-mask bertsmith-small --json '[MASK] text'",
    "embed bertsmith-small --json 'a text'",
    "heads bertsmith-small lines.txt",
    "check lines.csv",
]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """A folder with a text and a table."""
    (tmp_path / "lines.txt").write_text("The river flows.\nA storm tore the roof off.\n")
    (tmp_path / "lines.csv").write_text("text,label\n" + "a river,x\na storm,y\n" * 6)
    return tmp_path


@pytest.mark.parametrize("words", SILENT)
def test_no_output_at_all(words: str, lines: Path) -> None:
    command = [*PROGRAM[1:], *shlex.split(words)]
    running = python(*command, stdout=CLOSED, stderr=subprocess.PIPE, text=True, cwd=lines)
    _, err = running.communicate()
    assert "Traceback" not in err
    assert running.returncode in (0, 1)  # a check may have findings


@pytest.mark.parametrize(
    "words", ["recipes <&- >&- 2>&-", "tokenizer show bertsmith-small words >&-"]
)
def test_a_shell_that_closes_streams(words: str, lines: Path) -> None:
    command = f"{' '.join(PROGRAM)} {words}"
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True, cwd=lines)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0


LIMITED = """
import resource, sys
from bertsmith.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
sys.argv = ["bertsmith", "senses", "bertsmith-small", "the", "lines.txt"]
main()
"""


def test_a_limit_on_the_size_of_files_is_one_line(tmp_path: Path) -> None:
    """As after `ulimit -f 0`."""
    (tmp_path / "lines.txt").write_text("The river flows to the sea.\n" * 40)
    with (tmp_path / "out.txt").open("w") as out:
        running = python("-c", LIMITED, stdout=out, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    _, err = running.communicate()
    expected = "bertsmith: standard output cannot be written (File too large)\n"
    assert (running.returncode, err) == (2, expected)


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
