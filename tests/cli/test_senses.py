"""`bertsmith senses`, for a person and for a machine."""

from pathlib import Path

import pytest

from bertsmith import load
from bertsmith.analysis.senses import senses
from bertsmith.errors import BertsmithError
from cli.conftest import Run
from tasks.words import LINES


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text(LINES, "utf-8")
    return path


def test_for_a_machine(run: Run, model: Path, file: Path) -> None:
    *rows, last = run("senses", model, "the", file, "--groups", "2", "--limit", "6", "--json").rows
    found = senses(load(model), "the", LINES.split("\n"), groups=2, most=6)
    assert [row["group"] for row in rows] == found.groups
    assert all(row["text"][row["start"] : row["end"]].lower() == "the" for row in rows)
    assert last == {"depth": 2, "cosines": found.alike, "accuracies": None}


def test_for_a_person(run: Run, model: Path, file: Path, tmp_path: Path) -> None:
    line = "the\tthe river flows\tthe mayor asked\t"
    (tmp_path / "pairs.tsv").write_text("\n".join([line + "T", line + "F"] * 6), "utf-8")
    out, log = tmp_path / "page.html", tmp_path / "log"
    options = ["--out", out, "--projector", log, "--pairs", tmp_path / "pairs.tsv", "--depth", "1"]
    shown = run("senses", model, "the", file, *options).out
    assert "occurrences of 'the' at depth 1" in shown
    assert "accuracy on the pairs at depths 0, 1, ...:" in shown
    assert f"written to {out}\nwritten to {log}\n" in shown
    assert "Accuracy: do two occurrences have the same sense?" in out.read_text("utf-8")
    assert (log / "vectors.tsv").is_file()


def test_mistakes(run: Run, model: Path, file: Path) -> None:
    with pytest.raises(BertsmithError, match=r"the name must end in \.html"):
        run("senses", model, "the", file, "--out", "x.png")
    with pytest.raises(BertsmithError, match="'zebra' occurs 0 times"):
        run("senses", model, "zebra", file)
