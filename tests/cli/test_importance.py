"""`bertsmith importance`, for a person and for a machine."""

import re
from pathlib import Path

import pytest

from bertsmith.analysis.importance import for_answer, for_label
from bertsmith.errors import BertsmithError
from cli.conftest import Run
from conftest import made
from tasks.models import Maker

__all__ = ["made"]
TEXT = "Anna lives in <b>Uppsala</b>."


def test_a_label(run: Run, made: Maker, tmp_path: Path) -> None:
    source = made("bert", "ForSequenceClassification", num_labels=2)
    best = source.ours.classify(TEXT)
    out = tmp_path / "words.html"
    (row,) = run("importance", source.folder, TEXT, "--out", out, "--json").rows
    assert (row["kind"], row["said"]) == ("label", best.label)
    assert row["score"] == pytest.approx(best.score, abs=1e-6)
    expected = for_label(source.ours, TEXT)
    assert [word["text"] for word in row["words"]] == [word.text for word in expected]
    assert [word["importance"] for word in row["words"]] == pytest.approx(
        [word.importance for word in expected], abs=1e-5
    )
    page = out.read_text("utf-8")
    assert "Uppsala" in page
    assert "<b>" not in page
    assert re.search(r'<mark class="[sn]9"', page)
    other = next(name for name in source.ours.checkpoint.labels if name != best.label)
    lines = run("importance", source.folder, TEXT, "--label", other).out.splitlines()
    assert lines[0].startswith(f"label '{other}', ")
    assert len(lines) == 1 + len(expected)


def test_an_answer(run: Run, made: Maker) -> None:
    source = made("bert", "ForQuestionAnswering")
    (row,) = run("importance", source.folder, "Who lives there?", TEXT, "--json").rows
    (best,) = source.ours.answer("Who lives there?", TEXT)
    assert (row["kind"], row["said"]) == ("answer", best.text)
    expected = for_answer(source.ours, "Who lives there?", TEXT)
    assert len(row["words"]) == len(expected)
    with pytest.raises(BertsmithError, match="give a question and a passage"):
        run("importance", source.folder, "Who lives there?")
    with pytest.raises(BertsmithError, match="the model finds no answer in this passage"):
        run("importance", source.folder, "Who lives there?", "")


def test_mistakes(run: Run, made: Maker, model: Path) -> None:
    with pytest.raises(BertsmithError, match="for models that classify or answer questions"):
        run("importance", model, TEXT)
    folder = made("bert", "ForSequenceClassification", num_labels=2).folder
    with pytest.raises(BertsmithError, match="the model has no label 'good'"):
        run("importance", folder, TEXT, "--label", "good")
    with pytest.raises(BertsmithError, match=r"the name must end in \.html"):
        run("importance", folder, TEXT, "--out", "words.png")
