"""`bertsmith cka`, for a person and for a machine."""

from pathlib import Path

import numpy as np
import pytest

from bertsmith import load
from bertsmith.analysis.layers import alike
from bertsmith.errors import BertsmithError
from cli.conftest import Run
from tasks.words import LINES


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text(LINES, "utf-8")
    return path


@pytest.mark.parametrize("models", [1, 2])
def test_one_model_or_two(models: int, run: Run, model: Path, file: Path) -> None:
    rows = run("cka", model, file, *["--against", model][: 2 * models - 2], "--json").rows
    texts = [line for line in LINES.split("\n") if line.strip()]
    expected = alike(load(model), texts)
    assert np.allclose([row["cka"] for row in rows], expected, atol=1e-6)
    assert [row["depth"] for row in rows] == [0, 1, 2]


def test_for_a_person(run: Run, model: Path, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "cka.html"
    lines = run("cka", model, file, "--out", out).out.splitlines()
    assert lines[0].startswith(f"rows: depths of {model.name}; ")
    assert [line.split()[0] for line in lines[2:5]] == ["0", "1", "2"]
    assert [lines[2 + n].split()[1 + n] for n in range(3)] == ["1.00"] * 3
    page = out.read_text("utf-8")
    assert page.count("<td") == 9
    assert page.count('<td class="s9">1</td>') >= 3


def test_few_texts_are_noted(run: Run, model: Path, file: Path) -> None:
    few = run("cka", model, file, "--limit", "6", "--json")
    assert "note: 6 texts are few for vectors of 16 numbers" in few.err
    assert few.rows == run("cka", model, file, "--limit", "6", "--json").rows
    other = run("cka", model, file, "--limit", "6", "--seed", "1", "--json")
    assert few.rows != other.rows


def test_mistakes(run: Run, model: Path, file: Path, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("The river flows.\n", "utf-8")
    with pytest.raises(BertsmithError, match="CKA needs two texts or more"):
        run("cka", model, tmp_path / "one.txt")
    with pytest.raises(BertsmithError, match="no such file"):
        run("cka", model, tmp_path / "none.txt")
