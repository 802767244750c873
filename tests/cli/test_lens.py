"""`bertsmith lens`, for a person and for a machine."""

from pathlib import Path

import pytest

from bertsmith import load
from bertsmith.errors import BertsmithError
from cli.conftest import Run

TEXT = "The [MASK] flows through [MASK]."


def test_the_last_depth_is_what_the_model_says(run: Run, model: Path) -> None:
    rows = run("lens", model, TEXT, "--top", "3", "--json").rows
    assert [(row["depth"], row["mask"]) for row in rows] == [
        (d, m) for d in range(3) for m in (0, 1)
    ]
    expected = load(model).fill_mask(TEXT, top=3)
    said = [token for row in rows[-2:] for token in row["tokens"]]
    assert said == [guess.token for guess in expected]


def test_for_a_person(run: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "lens.html"
    lines = run("lens", model, TEXT, "--out", out).out.splitlines()
    assert [line.split("  ")[0].strip() for line in lines[:5]] == [
        *("mask 1", "depth", "0 (embeddings)", "1", "2")
    ]
    assert lines[5] == "mask 2"
    assert lines[-1] == f"written to {out}"
    page = out.read_text("utf-8")
    assert page.count("<tr>") == 8
    assert "The [MASK] flows" in page


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["The river flows."], "the text has no mask"),
        ([TEXT, "--out", "lens.pdf"], "lens.pdf: the name must end in .html"),
        ([TEXT, "--out", "nowhere/lens.html"], "cannot be written"),
    ],
)
def test_mistakes(words: list[str], fault: str, run: Run, model: Path) -> None:
    with pytest.raises(BertsmithError, match=fault):
        run("lens", model, *words)
