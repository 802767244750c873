"""`bertsmith distill` as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertsmith import BertsmithError, create
from bertsmith.checkpoint import Sentence, save
from bertsmith.distilling import speed
from cli.conftest import Run
from tasks.words import LINES, tokenizer


@pytest.fixture
def teacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny classifier."""
    monkeypatch.setattr(speed, "ROUNDS", 1)
    monkeypatch.setattr(speed, "SECONDS", 0.0)
    words = tokenizer("bert")
    settings = {"model_type": "bert", "vocab_size": words.size, "hidden_size": 16}
    settings |= {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    model = create({**settings, "id2label": {"0": "a", "1": "b"}}, heads=["classify"])
    save(tmp_path / "teacher", model, words, Sentence())
    return tmp_path / "teacher"


def test_a_student(run: Run, teacher: Path, tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    file.write_text(LINES * 3)
    out = tmp_path / "student"
    command = ("distill", teacher, file, "--out", out, "--layers", "0", "--epochs", "1")
    with pytest.raises(BertsmithError, match="cannot keep 0"):
        run(*command)
    done = run(*command[:5], "--layers", "0,1", "--epochs", "1", "--json")
    assert done.rows == [json.loads((out / "distill.json").read_text())]
    assert done.rows[0]["student"]["layers_kept"] == [0, 1]
    shown = run(*command[:5], "--epochs", "1", "--overwrite")
    assert "texts per second" in shown.out
    assert "student in" in shown.out
    with pytest.raises(BertsmithError, match="not empty"):
        run(*command[:5])


def test_static(run: Run, teacher: Path, tmp_path: Path) -> None:
    out = tmp_path / "static"
    done = run("distill", teacher, "--to", "static", "--width", "4", "--out", out)
    assert "random tokens" in done.err + done.out
    assert run("embed", out, "a", "b", "--json").rows[0]["vector"]


def test_mistakes(run: Run, teacher: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for words, message in (
        ((), "give texts"),
        ((tmp_path / "no.txt",), "no such file"),
        ((teacher, "--layers", "two"), "--layers must be a number"),
        ((teacher, "--layers", "-1"), "--layers must be a number|cannot keep -1"),
    ):
        with pytest.raises(BertsmithError, match=message):
            run("distill", teacher, *words, "--out", out)
    assert not out.exists()
