"""`evaluate` on plain text: masked-LM scores, as a person asks for them."""

import csv
import json
from pathlib import Path

import pytest

from bertsmith.errors import BertsmithError
from cli.conftest import Run
from tasks.words import LINES

TEXTS = LINES.split("\n")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text(LINES)
    return path


def test_a_text_file_is_scored_by_masked_lm(run: Run, model: Path, text: Path) -> None:
    (row,) = run("evaluate", model, text, "--json").rows
    assert (row["task"], row["file"]) == ("masked_lm", str(text))
    scores = row["models"][0]["scores"]
    assert scores["texts"] == len(TEXTS)
    assert 0 < scores["loss"] < 10
    assert run("evaluate", model, text, "--json").rows == [row]
    shown = run("evaluate", model, text)
    assert f"{scores['perplexity']:.4f}" in shown.out
    records = text.with_suffix(".jsonl")
    records.write_text("\n".join(json.dumps({"text": line}) for line in TEXTS))
    (same,) = run("evaluate", model, records, "--json").rows
    assert same["models"][0]["scores"] == scores


def test_several_files_and_two_models(run: Run, model: Path, text: Path) -> None:
    (row,) = run(
        "evaluate", model, text, text, "--against", model, "--json", "--pseudo-perplexity"
    ).rows
    first, second = (one["scores"] for one in row["models"])
    assert first == second
    assert first["texts"] == 2 * len(TEXTS)
    assert first["pseudo_perplexity"] > 1


def test_labelled_data_by_its_texts(run: Run, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    with path.open("w", newline="") as stream:
        rows = [(text, number % 2) for number, text in enumerate(TEXTS)]
        csv.writer(stream).writerows([("text", "label"), *rows])
    with pytest.raises(BertsmithError, match="no task head"):
        run("evaluate", model, path)
    (row,) = run("evaluate", model, path, "--masked-lm", "--json").rows
    assert row["models"][0]["scores"]["texts"] == len(TEXTS)


def test_what_cannot_be_scored(run: Run, model: Path, text: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(BertsmithError, match=r"empty\.txt is empty"):
        run("evaluate", model, tmp_path / "empty.txt")
    with pytest.raises(BertsmithError, match=r"none\.txt"):
        run("evaluate", model, tmp_path / "none.txt")
    with pytest.raises(BertsmithError, match="not for masked LM"):
        run("evaluate", model, text, "--metric", "loss")
