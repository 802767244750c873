"""`bertsmith demo`, as a person types it."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertsmith.demo import run as steps
from bertsmith.demo.budget import FULL, QUICK
from bertsmith.errors import BertsmithError
from cli.conftest import Run


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `run` is asked for, instead of being made."""
    asked: list[Any] = []

    def run(*words: Any) -> dict[str, Any]:
        asked.append(words)
        return {"finished": True}

    monkeypatch.setattr(steps, "run", run)
    return asked


def test_defaults(run: Run, calls: list[Any]) -> None:
    shown = run("demo")
    assert (shown.status, shown.out, shown.err) == (0, "", "")
    ((out, text, pace, console),) = calls
    assert (out, text, pace, console.quiet) == (Path("demo"), None, FULL, False)


def test_words(run: Run, calls: list[Any], tmp_path: Path) -> None:
    shown = run("demo", "--quick", "--out", "here", "--text", tmp_path, "--json")
    assert json.loads(shown.out) == {"finished": True}
    ((out, text, pace, console),) = calls
    assert (out, text, pace, console.quiet) == (Path("here"), tmp_path, QUICK, True)


def test_interrupted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(steps, "run", interrupt)
    shown = run("demo", "--out", "here")
    assert (shown.status, shown.out) == (130, "")
    assert shown.err == "stopped; the same command starts again in here\n"


def test_mistakes_are_found_before_anything_is_done(
    run: Run, calls: list[Any], tmp_path: Path
) -> None:
    with pytest.raises(BertsmithError, match="no such folder; text needs a folder"):
        run("demo", "--text", tmp_path / "nowhere", "--out", tmp_path / "demo")
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(BertsmithError, match="not made by this command"):
        run("demo", "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
    assert calls == []
