"""`bertsmith ablate`, for a person and for a machine."""

from pathlib import Path

import pytest

from bertsmith import load
from bertsmith.analysis.ablation import ablated, loss, masked_words, shape
from bertsmith.errors import BertsmithError
from cli.conftest import Run
from tasks.words import LINES


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text(LINES, "utf-8")
    return path


def test_without_some_heads(run: Run, model: Path, file: Path) -> None:
    options = ["--heads", "0.1,1.*", "--seed", "4", "--limit", "3"]
    (row,) = run("ablate", model, file, *options, "--json").rows
    bert = load(model)
    material = masked_words(bert, LINES.split("\n")[:3], seed=4)
    with ablated(bert, [(0, 1), (1, 0), (1, 1)]):
        assert row["without"] == pytest.approx(loss(bert, material), abs=1e-6)
    assert row["loss"] == pytest.approx(loss(bert, material), abs=1e-6)
    assert row["heads"] == [[0, 1], [1, 0], [1, 1]]
    shown = run("ablate", model, file, *options).out.splitlines()
    assert shown[0] == "without 3: 0.1, 1.0, 1.1"
    assert shown[1].startswith(f"loss {row['loss']:.4f} → {row['without']:.4f} (")


def test_without_layers_or_with_means(run: Run, model: Path, file: Path) -> None:
    (skipped,) = run("ablate", model, file, "--layers", "0-1", "--json").rows
    (masked,) = run("ablate", model, file, "--heads", "1.*", "--json").rows
    (averaged,) = run("ablate", model, file, "--heads", "1.*", "--mean", "--json").rows
    assert len({skipped["without"], masked["without"], averaged["without"]}) == 3


@pytest.mark.parametrize("options", [[], ["--alone"], ["--alone", "--mean"]])
def test_ranks(options: list[str], run: Run, model: Path, file: Path) -> None:
    rows = run("ablate", model, file, *options, "--json").rows
    assert sorted((row["layer"], row["head"]) for row in rows) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    order = [row["importance"] for row in rows]
    assert order == sorted(order, reverse=True)
    lines = run("ablate", model, file, *options).out.splitlines()
    assert len(lines) == 5
    assert lines[1].split()[0] == f"{rows[0]['layer']}.{rows[0]['head']}"


def test_pruning(run: Run, model: Path, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "small"
    worst = run("ablate", model, file, "--json").rows[-1]
    (row,) = run("ablate", model, file, "--prune", "25%", "--out", out, "--json").rows
    assert row["heads"] == [[worst["layer"], worst["head"]]]
    before, after = row["parameters"]
    assert before - after == 4 * 8 * 16 + 3 * 8  # the four maps of a head of width 8, three biases
    assert sorted(shape(load(out))) == [1, 2]
    same = tmp_path / "same"
    shown = run("ablate", model, file, "--prune", "1", "--out", same, "--keep-shapes").out
    assert f"{before:,} → {before:,} parameters, saved in {same}" in shown
    assert shape(load(same)) == [2, 2]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--heads", "3"], "--heads: '3' is not like 0.3 or 2.*"),
        (["--heads", "0.7"], "there is no head 7 in layer 0"),
        (["--heads", "9.*"], "there is no head 0 in layer 9"),
        (["--layers", "2"], "there is no layer 2"),
        (["--prune", "2"], "--prune and --out go together"),
        (["--prune", "1", "--heads", "0.0"], "--prune chooses heads itself"),
        (["--prune", "half", "--out", "x"], "'half' is not a number of heads"),
        (["--task", "tag"], "--task is masked or classify"),
        (["--task", "classify"], "text 1: no tab and label"),
    ],
)
def test_mistakes(words: list[str], fault: str, run: Run, model: Path, file: Path) -> None:
    with pytest.raises(BertsmithError) as caught:
        run("ablate", model, file, *words)
    assert fault in str(caught.value)
