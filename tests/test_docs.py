"""What README and guide show is what happens: their Python and console blocks are run."""

import doctest
import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import pytest

from bertsmith.cli.app import main

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the demo's model, as `make demo` leaves it."""
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "bertsmith.cli", "demo", "--out", "demo-model"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "paris" in done.stdout
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python(page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    failed, _ = doctest.testfile(str(page), module_relative=False, optionflags=FLAGS)
    assert failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_console(page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    for name, value in {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    checker = doctest.OutputChecker()
    for block in CONSOLE.findall(page.read_text("utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            shown = run(command, monkeypatch)
            message = f"{page.name}: $ {command}\nexpected:\n{expected}\ngot:\n{shown}"
            assert checker.check_output(expected, shown, FLAGS), message


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command prints; ours runs in this process, where everything is imported."""
    if not command.startswith("bertsmith "):
        return subprocess.run(
            command, shell=True, capture_output=True, text=True, check=True
        ).stdout
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    shown = io.StringIO()
    with redirect_stdout(shown), redirect_stderr(shown), suppress(SystemExit):
        main()
    return shown.getvalue()


def test_pages_link_to_what_is_there() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([\w/.-]+)(?:#[\w-]+)?\)", page.read_text("utf-8")):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
