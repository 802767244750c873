"""`bertsmith compare`, for a person and for a machine."""

from pathlib import Path

import pytest

from bertsmith.errors import BertsmithError
from cli.conftest import Run


def test_specs_are_listed_and_printed(run: Run) -> None:
    rows = run("compare", "--list", "--json").rows
    names = [row["name"] for row in rows]
    assert "family" in names
    for name in names:
        assert name in run("compare", "--list").out
    text = run("compare", "--print", "masking-rate").out
    assert "[variants.mask-40]" in text
    (spec,) = run("compare", "--print", "masking-rate", "--json").rows
    assert spec["variants"]["mask-40"]["settings"]["masking"]["rate"] == 0.4


def test_a_printed_spec_can_be_used(run: Run, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(run("compare", "--print", "family").out)
    with pytest.raises(BertsmithError, match="no corpus"):
        run("compare", own, "--out", tmp_path / "out")
    assert not (tmp_path / "out" / "spec.toml").exists()


def test_static(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "sizes.html"
    (row,) = run("compare", "--static", "--size", "bert-tiny", "--html", page, "--json").rows
    assert row["parameters"] == 4_385_920
    assert row["tokens_per_second"] > 0
    assert "bert-tiny" in page.read_text("utf-8")
    table = run("compare", "--static", "--size", "bert-base-uncased", "--no-speed").out
    assert "109,482,240" in table


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([], "needs one of SPEC, --static, --list and --print"),
        (["family", "--list"], "needs one of"),
        (["family"], "--out FOLDER"),
        (["family", "--out", "x", "--size", "bert-tiny"], "are for --static"),
        (["--static", "--size", "bert-tny"], "did you mean bert-tiny"),
        (["--static", "--html", "page.txt"], "the name must end in .html"),
        (["famly", "--out", "x"], "did you mean family"),
        (["family", "--out", "x", "--set", "budgte.tokens=3"], "did you mean budget"),
    ],
)
def test_mistakes(run: Run, words: list[str], fault: str) -> None:
    with pytest.raises(BertsmithError, match=fault):
        run("compare", *words)
