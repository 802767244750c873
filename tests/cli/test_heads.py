"""`bertsmith heads`, for a person and for a machine."""

from pathlib import Path

import pytest

from bertsmith import load
from bertsmith.analysis.heads import METRICS, measure, texts
from bertsmith.errors import BertsmithError
from cli.conftest import Run

LINES = ["The river flows through Prague.", "", "Nobody could answer her question."]
TREE = "1\tThe\t_\tDET\t_\t_\t2\tdet\t_\t_\n2\triver\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES), "utf-8")
    return path


def test_for_a_person(run: Run, model: Path, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "heads.html"
    lines = run("heads", model, file, "--out", out).out.splitlines()
    assert lines[0].startswith("2 inputs, ")
    assert [line.split()[0] for line in lines[2:11]] == list(METRICS)
    assert lines[-1] == f"written to {out}"
    assert out.read_text("utf-8").count('<table class="heat"') == len(METRICS)


def test_for_a_machine(run: Run, model: Path, file: Path) -> None:
    rows = run("heads", model, file, "--json").rows
    bert = load(model)
    assert rows == list(measure(bert, texts(bert, [LINES[0], LINES[2]])).rows())
    assert len(run("heads", model, file, "--limit", "1", "--json").rows) == len(rows)
    assert rows[0].keys() == {"layer", "head", *METRICS}


def test_dependencies(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "tree.conllu").write_text(TREE * 2, "utf-8")
    *heads, relation = run("heads", model, tmp_path / "tree.conllu", "--json").rows
    assert len(heads) == 4
    assert (relation["relation"], relation["count"], relation["accuracy"]) == ("det", 2, 1.0)
    shown = run("heads", model, tmp_path / "tree.conllu").out
    assert "det" in shown.splitlines()[-1]


def test_mistakes(run: Run, model: Path, file: Path, tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match=r"the name must end in \.html"):
        run("heads", model, file, "--out", "heads.png")
    with pytest.raises(BertsmithError, match="no such file"):
        run("heads", model, tmp_path / "none.txt")
    file.write_text("not a tree", "utf-8")
    with pytest.raises(BertsmithError, match="line 1: 1 column "):
        run("heads", model, file.rename(tmp_path / "bad.conllu"))
