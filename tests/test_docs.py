"""What README and guide show is what happens: their Python and console blocks are run."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
def test_console(page: Path, workplace: Path) -> None:
    checker = doctest.OutputChecker()
    for block in CONSOLE.findall(page.read_text("utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            shown = run(command, workplace)
            message = f"{page.name}: $ {command}\nexpected:\n{expected}\ngot:\n{shown}"
            assert checker.check_output(expected, shown, FLAGS), message


def run(command: str, folder: Path) -> str:
    verb = command.replace("bertsmith", f"{sys.executable} -m bertsmith.cli", 1)
    done = subprocess.run(
        verb,
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"},
    )
    return done.stdout + done.stderr


def test_pages_link_to_what_is_there() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([\w/.-]+)(?:#[\w-]+)?\)", page.read_text("utf-8")):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
