"""`bertsmith ablate`, for a person and for a machine."""

import json
from pathlib import Path

import pytest

from bertsmith import load
from bertsmith.analysis.ablation import ablated, loss, masked_words, scores
from bertsmith.analysis.maps import head_counts
from bertsmith.errors import BertsmithError
from bertsmith.tasks.read import read_data
from cli.conftest import Run
from conftest import made
from tasks.models import Maker
from tasks.words import LINES

__all__ = ["made"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text(LINES, "utf-8")
    return path


def test_without_some_heads(run: Run, model: Path, file: Path) -> None:
    options = ["--heads", "0.1,1.*", "--seed", "4"]
    (row,) = run("ablate", model, file, *options, "--json").rows
    bert = load(model)
    material = masked_words(bert, [line for line in LINES.split("\n") if line.strip()], seed=4)
    with ablated(bert, [(0, 1), (1, 0), (1, 1)]):
        assert row["without"]["loss"] == pytest.approx(loss(bert, material), abs=1e-6)
    assert row["with"]["loss"] == pytest.approx(loss(bert, material), abs=1e-6)
    assert row["heads"] == [[0, 1], [1, 0], [1, 1]]
    shown = run("ablate", model, file, *options).out.splitlines()
    assert shown[0] == "without 3: 0.1, 1.0, 1.1"
    assert shown[1].startswith(f"loss {row['with']['loss']:.4f} → {row['without']['loss']:.4f} (")


def test_without_layers_or_with_means(run: Run, model: Path, file: Path) -> None:
    (skipped,) = run("ablate", model, file, "--layers", "0-1", "--json").rows
    (masked,) = run("ablate", model, file, "--heads", "1.*", "--json").rows
    (averaged,) = run("ablate", model, file, "--heads", "1.*", "--mean", "--json").rows
    assert len({one["without"]["loss"] for one in (skipped, masked, averaged)}) == 3


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
    assert sorted(head_counts(load(out))) == [1, 2]
    same = tmp_path / "same"
    shown = run("ablate", model, file, "--prune", "1", "--out", same, "--keep-shapes").out
    assert f"{before:,} → {before:,} parameters, saved in {same}" in shown
    assert head_counts(load(same)) == [2, 2]


def labels(made: Maker, tmp_path: Path) -> tuple[Path, Path]:
    """A classifier and a file on which it is right three times out of four."""
    source = made("bert", "ForSequenceClassification", num_labels=2)
    texts = LINES.split("\n")[:4]
    gold = [one.label for one in source.ours.classify(texts)]
    gold[0] = next(name for name in source.ours.checkpoint.labels if name != gold[0])
    rows = [f"{text}\t{label}" for text, label in zip(texts, gold, strict=True)]
    (tmp_path / "data.tsv").write_text("\n".join(["text\tlabel", *rows]), "utf-8")
    return source.folder, tmp_path / "data.tsv"


def test_scores_on_labels(run: Run, made: Maker, tmp_path: Path) -> None:
    folder, data = labels(made, tmp_path)
    (row,) = run("ablate", folder, data, "--heads", "0.*,1.*", "--json").rows
    assert row["with"]["accuracy"] == 0.75
    bert = load(folder)
    with ablated(bert, [(layer, head) for layer in range(2) for head in range(4)]):
        expected = scores(bert, read_data(data, "classification"))
    assert row["without"] == pytest.approx(expected)
    assert row["without"] != pytest.approx(row["with"])
    shown = run("ablate", folder, data, "--heads", "0.*,1.*").out
    assert f"accuracy 0.7500 → {expected['accuracy']:.4f} (" in shown


def test_ranks_by_score_and_by_gradient(run: Run, made: Maker, tmp_path: Path) -> None:
    folder, data = labels(made, tmp_path)
    by_slope = run("ablate", folder, data, "--json").rows
    assert len(by_slope) == 8
    by_score = run("ablate", folder, data, "--alone", "--json").rows
    bert = load(folder)
    for row in (by_score[0], by_score[-1]):
        with ablated(bert, [(row["layer"], row["head"])]):
            left = scores(bert, read_data(data, "classification"))["accuracy"]
        assert row["importance"] == pytest.approx(0.75 - left)
    (pruned,) = run(
        "ablate", folder, data, "--prune", "2", "--out", tmp_path / "small", "--json"
    ).rows
    smaller = load(tmp_path / "small")
    assert pruned["without"] == pytest.approx(scores(smaller, read_data(data, "classification")))


def test_answers_are_scored_and_not_ranked_by_gradient(
    run: Run, made: Maker, tmp_path: Path
) -> None:
    folder = made("bert", "ForQuestionAnswering").folder
    row = {"question": "Who flows?", "context": "The river flows.", "answers": ["The river"]}
    (tmp_path / "data.jsonl").write_text(json.dumps(row), "utf-8")
    words = ["ablate", folder, tmp_path / "data.jsonl"]
    (found,) = run(*words, "--layers", "1", "--mean", "--json").rows
    assert found["with"].keys() == found["without"].keys() >= {"exact", "f1"}
    assert len(run(*words, "--alone", "--json").rows) == 8
    with pytest.raises(BertsmithError, match="not for answering: use one_by_one") as gradients:
        run(*words)
    assert gradients.value.for_command_line().endswith("not for answering: add --alone")


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--heads", "3"], "--heads: '3' is not like 0.3 or 2.*"),
        (["--heads", "0.7"], "--heads: the head of '0.7' is '7', not a whole number from 0 to 1"),
        (["--heads", "9.*"], "--heads: the layer of '9.*' is '9', not a whole number from 0 to 1"),
        (["--layers", "2"], "no layer 2"),
        (["--prune", "2"], "--prune and --out go together"),
        (["--prune", "1", "--heads", "0.0"], "--prune chooses heads itself"),
        (["--prune", "half", "--out", "x"], "'half' is not a number of heads"),
        (["--prune", "101%", "--out", "x"], "'101%' is not a number of heads"),
        (["--layers", "0-999999999"], "not a whole number from 0 to 99999"),
        (["--heads", "0.999999999999999999999"], "not a whole number from 0 to 1"),
    ],
)
def test_mistakes(words: list[str], fault: str, run: Run, model: Path, file: Path) -> None:
    with pytest.raises(BertsmithError) as caught:
        run("ablate", model, file, *words)
    assert fault in str(caught.value)
