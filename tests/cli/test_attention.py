"""`bertsmith attention`, for a person and for a machine."""

from pathlib import Path

import numpy as np
import pytest

from bertsmith import load
from bertsmith.errors import BertsmithError
from cli.conftest import Run

TEXT = "The river flows through Prague."


def test_a_page_for_a_person(run: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    shown = run("attention", model, TEXT, "The mayor asked.", "--out", out, "--view", "lines")
    count = len(load(model).attention(TEXT, "The mayor asked."))
    assert shown.out.splitlines()[0] == f"{model.name}: {count} tokens, 2 layers, 2 heads"
    assert shown.out.splitlines()[1].startswith(f"written to {out}, ")
    page = out.read_text("utf-8")
    assert '"view": "lines"' in page
    assert f"What {model.name} attends to" in page


def test_two_models_and_two_texts_for_a_machine(run: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    options = ["--other-text", "A letter.", "--against", model, "--layers", "1", "--json"]
    shown = run("attention", model, TEXT, "--out", out, *options)
    (row,) = shown.rows
    assert row["bytes"] == out.stat().st_size
    assert [one["layers"] for one in row["views"]] == [1] * 4
    assert [one["tokens"] for one in row["views"]] == [
        len(load(model).attention(text)) for text in (TEXT, "A letter.") * 2
    ]


def test_arrays_of_a_file(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(f"{TEXT}\nThe mayor asked.\n", "utf-8")
    out = tmp_path / "maps.npz"
    options = ["--out", out, "--heads", "0-1", "--layers", "0", "--tokens", "2-4"]
    shown = run("attention", model, "--file", tmp_path / "text.txt", *options)
    assert shown.status == 0
    assert "read it with numpy.load" in shown.out
    assert "browser" not in shown.out
    view = load(model).attention(f"{TEXT}\nThe mayor asked.", layers=[0])
    with np.load(out) as stored:
        assert np.array_equal(stored["weights"], view.rows([2, 3, 4]))


def test_an_unknown_view_is_a_mistake(run: Run, model: Path) -> None:
    shown = run("attention", model, TEXT, "--view", "graph")
    assert shown.status == 2
    assert "'graph' is not one of 'text', 'lines', 'matrix', 'heads'" in shown.err


def test_importance_needs_a_label_or_an_answer(run: Run, model: Path) -> None:
    with pytest.raises(BertsmithError, match="for models that classify or answer questions"):
        run("attention", model, TEXT, "--importance")


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([], "give either a text or --file"),
        ([TEXT, "--file", "text.txt"], "give either a text or --file"),
        ([TEXT, "--layers", "0,x"], "--layers: 'x' is 'x', not a whole number from 0 to"),
        ([TEXT, "--layers", "0-999999999"], "not a whole number from 0 to 99999"),
        ([TEXT, "--layers", "0-" + "9" * 5000], "not a whole number from 0 to 99999"),
        ([TEXT, "--heads", "²"], "not a whole number"),
        ([TEXT, "--layers", "7"], "no layer 7: valid numbers are 0 to 1"),
        ([TEXT, "--heads", "3-2"], "--heads: '3-2' is not a valid selection"),
        ([TEXT, "--tokens", "5-500"], "tokens 5 to 501 are out of range"),
        ([TEXT, "--out", "page.pdf"], r"page.pdf: the name must end in \.html or \.npz"),
        ([" "], "the text is empty"),
        (["river " * 80], "tokens, but the model reads 64 at once"),
    ],
)
def test_mistakes(words: list[str], fault: str, run: Run, model: Path) -> None:
    with pytest.raises(BertsmithError, match=fault):
        run("attention", model, *words)
