"""`bertsmith probe`, for a person and for a machine."""

from pathlib import Path

import pytest

from bertsmith.errors import BertsmithError
from cli.conftest import Run

LINES = "The D\nriver N\nflows V\n\nThe D\nmayor N\nasked V\n"
TREE = "1\tThe\t_\tDET\t_\t_\t2\tdet\t_\t_\n2\triver\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n"


def test_columns_and_treebanks(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text(LINES, "utf-8")
    (tmp_path / "tree.conllu").write_text(TREE * 3, "utf-8")
    files = [tmp_path / "words.txt"] * 2
    rows = run("probe", model, *files, "--json").rows
    assert [row["depth"] for row in rows] == [0, 1, 2]
    assert rows[0]["accuracy"] == rows[0]["lookup"] == 1.0
    lines = run("probe", model, *[tmp_path / "tree.conllu"] * 2).out.splitlines()
    assert lines[0].startswith("2 tags, 6 training words, 6 test words; ")
    assert [line.split()[0] for line in lines[2:]] == ["0", "1", "2"]


def test_mistakes(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("word\n", "utf-8")
    with pytest.raises(BertsmithError, match="cannot tell which column holds the tokens"):
        run("probe", model, *[tmp_path / "words.txt"] * 2)
