"""What README and guide show is what happens: their Python and console blocks are run."""

import doctest
import io
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bertsmith.cli.app import main
from bertsmith.demo import journey
from bertsmith.demo.pace import QUICK

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


# The demo's own text and shapes, and hardly any training: pages say what is true of every run.
HASTE = replace(QUICK, steps=20, classifier_seconds=0.1, tagger_seconds=0.1, epochs=1)
HASTE = replace(HASTE, few=24, few_epochs=1, few_tests=8)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the demo leaves."""
    folder = tmp_path_factory.mktemp("docs") / "demo"
    journey.run(folder, None, HASTE, Console(quiet=True))
    return folder


@pytest.fixture
def workplace(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the demo was run, and nothing else: this is where a page is read."""
    shutil.copytree(demo, tmp_path / "demo")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python(page: Path) -> None:
    failed, _ = doctest.testfile(str(page), module_relative=False, optionflags=FLAGS)
    assert failed == 0


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_console(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    checker = doctest.OutputChecker()
    for block in CONSOLE.findall(page.read_text("utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            shown = run(command, monkeypatch)
            message = f"{page.name}: $ {command}\nexpected:\n{expected}\ngot:\n{shown}"
            assert checker.check_output(expected, shown, FLAGS), message
            # "..." must not hide a mistake: an error is shown as what it is.
            assert "bertsmith: " in expected or not re.search("^bertsmith: ", shown, re.M), message


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command prints; ours runs in this process, where everything is imported."""
    if not command.startswith("bertsmith "):
        return subprocess.run(
            command, shell=True, capture_output=True, text=True, check=True
        ).stdout
    if command.startswith("bertsmith pretrain"):
        command += " --set train.steps=20"  # what a page shows is true of a short run too
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    shown = io.StringIO()
    with redirect_stdout(shown), redirect_stderr(shown), suppress(SystemExit):
        main()
    return shown.getvalue()


def test_pages_link_to_what_is_there() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([\w/.-]+)(?:#[\w-]+)?\)", page.read_text("utf-8")):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
