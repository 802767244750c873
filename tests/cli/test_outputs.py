"""Outputs of the verbs that look inside a model: refused before the work, or one line after it."""

from pathlib import Path

import pytest

from bertsmith.errors import BertsmithError
from cli.conftest import Run
from tasks.words import LINES

VERBS = {
    "attention": ["The river flows."],
    "lens": ["The [MASK] flows."],
    "heads": ["lines.txt"],
    "cka": ["lines.txt"],
    "senses": ["the", "lines.txt"],
    "importance": ["The river flows."],
}


@pytest.fixture
def never_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with texts, and a model that must not be opened."""
    (tmp_path / "lines.txt").write_text(LINES, "utf-8")
    monkeypatch.chdir(tmp_path)

    def loaded(*arguments: object, **options: object) -> None:
        raise AssertionError("the model was loaded before the output was checked")

    monkeypatch.setattr("bertsmith.bert.load", loaded)


@pytest.mark.usefixtures("never_loaded")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("out", "fault"),
    [
        ("nowhere/page.html", "cannot be written"),
        ("x" * 300 + ".html", "cannot be written"),
        ("lines.txt/page.html", "cannot be written"),
        ("page.png", "the name must end in .html"),
    ],
)
def test_a_bad_output_is_found_before_the_work(
    verb: str, out: str, fault: str, run: Run, model: Path
) -> None:
    with pytest.raises(BertsmithError) as caught:
        run(verb, model, *VERBS[verb], "--out", out)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("never_loaded")
def test_bad_folders_are_found_before_the_work(run: Run, model: Path) -> None:
    with pytest.raises(BertsmithError, match="a file of this name exists"):
        run("senses", model, "the", "lines.txt", "--projector", "lines.txt")
    with pytest.raises(BertsmithError, match="cannot be written"):
        run("senses", model, "the", "lines.txt", "--projector", "x" * 300)
    for out in ("lines.txt", "x" * 300):
        with pytest.raises(BertsmithError, match=r"a file of this name exists|cannot be written"):
            run("ablate", model, "lines.txt", "--prune", "1", "--out", out)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("ending", ["html", "npz"])
@pytest.mark.parametrize("verb", ["attention", "lens"])
def test_a_full_disk_is_one_line(
    verb: str, ending: str, run: Run, model: Path, tmp_path: Path
) -> None:
    if (verb, ending) == ("lens", "npz"):
        pytest.skip("lens writes pages only")
    out = tmp_path / f"page.{ending}"
    out.symlink_to("/dev/full")
    with pytest.raises(BertsmithError, match=r"cannot be written .No space left on device"):
        run(verb, model, *VERBS[verb], "--out", out)


def test_tokens_with_escape_codes_do_not_reach_the_terminal(
    run: Run, model: Path, tmp_path: Path
) -> None:
    bad = "the \x1b[31mriver\x1b[0m \x07flows"
    (tmp_path / "lines.txt").write_text(f"{bad}\n" * 4, "utf-8")
    shown = run("senses", model, "the", tmp_path / "lines.txt")
    assert "\x1b" not in shown.out + shown.err
    assert "\x07" not in shown.out + shown.err
