"""The program itself: help, versions, mistakes, exit statuses, pipes."""

import errno
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

import bertsmith
from bertsmith.cli import main
from bertsmith.cli.app import SECTIONS, app
from cli.conftest import Run
from processes import ran

VERBS = sorted(verb for verbs in SECTIONS.values() for verb in verbs)
NESTED = [
    ["index", "export"],
    ["tokenizer", "train"],
    ["tokenizer", "extend"],
    ["tokenizer", "show"],
]


@pytest.mark.parametrize("words", [[], *([verb] for verb in VERBS), *NESTED])
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_verb_has_help(words: list[str], flag: str, run: Run) -> None:
    shown = run(*words, flag)
    assert shown.status == 0
    assert shown.out.startswith("Usage: ")
    assert all(len(line) <= 80 for line in shown.out.splitlines())
    assert shown.err == ""
    if not words:
        cut = [line for line in shown.out.partition("Start:")[2].splitlines() if "..." in line]
        assert cut == [], "the first line of a verb's docstring has at most 66 characters"
        sections = [line[:-1] for line in shown.out.splitlines() if line.endswith(":")]
        assert sections == [
            "Options",
            "Start",
            "Data",
            "Train",
            "Use",
            "Search",
            "Inspect",
            "System",
        ]
        assert {line.split()[0] for line in shown.out.splitlines() if line[:2] == "  "} >= {*VERBS}


def test_every_help_line_is_a_sentence() -> None:
    """It starts with a capital and ends with a full stop."""
    todo: list[tuple[str, Any]] = [("bertsmith", typer.main.get_command(app))]
    lines: list[tuple[str, str]] = []
    while todo:
        path, command = todo.pop()
        lines += [(path, (command.help or "").partition("\n\n")[0])]
        lines += [
            (f"{path} {one.name}", text)
            for one in command.params
            if (text := getattr(one, "help", None)) is not None
        ]
        todo += [(f"{path} {name}", one) for name, one in getattr(command, "commands", {}).items()]
    assert len(lines) > 400
    assert [one for one in lines if not re.match(r"[A-Z].*\.$", one[1], re.DOTALL)] == []


def test_help_needs_nothing_heavy() -> None:
    code = """
import sys
from bertsmith.cli import main
heavy = {"torch", "numpy", "tokenizers", "huggingface_hub", "rich.console", "pydantic"}
for words in sys.argv[1:]:
    sys.argv = ["bertsmith", *words.split(), "--help"]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, words
    loaded = heavy & set(sys.modules)
    assert not loaded, (words, loaded)
"""
    words = ["", *VERBS, *map(" ".join, NESTED)]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_verb_shows_the_help(run: Run) -> None:
    shown = run()
    assert shown.status == 2
    assert "Usage: " in shown.out + shown.err


def test_version(run: Run) -> None:
    assert run("--version").out == f"bertsmith {bertsmith.__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        ["--nonsense"],
        ["nonsense"],
        ["embed", "--nonsense", "model", "text"],
        ["embed"],
        ["embed", "model", "text", "--dtype", "int4"],
        ["check", "file.csv", "--task", "poetry"],
        ["demo", "--nonsense"],
        ["heads", "model"],
        ["doctor", "extra"],
        ["tokenizer", "nonsense"],
        ["tokenizer", "train", "file.txt"],
    ],
)
def test_wrong_words_are_one_line_and_status_2(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bertsmith", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("bertsmith: ")
    assert shown.err.count("\n") == 1
    assert shown.err.rstrip().endswith("--help")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["fill-mask", "./no-such-model", "a [MASK]"],
            "./no-such-model: no such directory",
        ),
        (["embed", "m", "--out", "x.txt", "a"], "x.txt: the name must end in .npy, .jsonl or "),
        (["embed", "m", "--file", "no\nwhere.txt"], "no where.txt: no such file"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(words: list[str], message: str, shell: Run) -> None:
    shown = shell(*words)
    assert shown.status == 2
    assert shown.out == ""
    assert shown.err.startswith(f"bertsmith: {message}")
    assert shown.err.count("\n") == 1
    assert shown.err.endswith("\n")


def test_a_reader_that_has_seen_enough(model: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the river [MASK]\n" * 3000)
    program = f"{sys.executable} -m bertsmith.cli"
    command = f"{program} tokenizer show {model} --file {tmp_path}/lines.txt --json | head -n 2"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == ""


def test_a_person_who_stops_it() -> None:
    code = """
import sys
from bertsmith.cli import main, shared

def stop(texts, file, columns):
    raise KeyboardInterrupt

shared.open_texts = stop
sys.argv = ["bertsmith", "embed", "model", "text"]
main()
"""
    done = ran("-c", code)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "bertsmith.cli", "--version"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == f"bertsmith {bertsmith.__version__}\n"


def test_output_that_the_terminal_cannot_spell(model: Path) -> None:
    command = [sys.executable, "-m", "bertsmith.cli", "tokenizer", "show", str(model), "Kraków 😀"]
    plain = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for more in ([], ["--json"]):
        done = subprocess.run([*command, *more], capture_output=True, text=True, env=plain)
        assert "Traceback" not in done.stderr
        assert done.returncode == 0


def test_shells_can_complete() -> None:
    command = [sys.executable, "-m", "bertsmith"]
    asked = {**os.environ, "_BERTSMITH_COMPLETE": "complete_bash", "_TYPER_COMPLETE_TESTING": "1"}
    asked |= {"COMP_WORDS": "bertsmith fine", "COMP_CWORD": "1"}
    code = "import sys; sys.argv = ['bertsmith']; from bertsmith.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=asked)
    assert done.stdout.split() == ["finetune"]
    # The shell is found among the parents of the process: `; true` keeps bash as one of them.
    line = f"{shlex.join([*command, '--show-completion'])}; true"
    shown = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert "COMP_WORDS" in shown.stdout


def test_a_failure_of_the_file_system_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(**_: object) -> None:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), "/a/name")

    monkeypatch.setattr("bertsmith.cli.app.app", fails)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert capsys.readouterr().err == "bertsmith: /a/name: File name too long\n"
