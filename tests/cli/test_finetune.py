"""`finetune`, `evaluate` and `predict`, as a person runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bertsmith import BertsmithError
from bertsmith.cli.finetune import TrainingProgress
from cli.conftest import Run

FAST = ("--learning-rate", "0.01", "--batch-size", "8", "--device", "cpu")


def rows(count: int = 48) -> list[dict[str, Any]]:
    words = (("Paris", "city"), ("bees", "thing"))
    return [
        {"text": f"the old {words[n % 2][0]} number {n // 2 % 6}", "label": words[n % 2][1]}
        for n in range(count)
    ]


def jsonl(path: Path, content: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in content), "utf-8")
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return jsonl(tmp_path_factory.mktemp("data") / "train.jsonl", rows())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, model: Path, file: Path) -> Path:
    """A classifier that has learned."""
    from typer.testing import CliRunner

    from bertsmith.cli.app import app

    out = tmp_path_factory.mktemp("trained") / "out"
    words = ["finetune", model, file, "--dev", file, "--out", out, "--epochs", "20", *FAST]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    assert "accuracy" in done.stdout
    assert "report.html" in done.stdout
    return out


def test_finetune_tells_machines(run: Run, model: Path, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run(
        "finetune", model, file, "--out", out, "--epochs", "1", "--seeds", "2", "--json", *FAST
    )
    (report,) = done.rows
    assert report == json.loads((out / "report.json").read_text("utf-8"))
    assert report["task"] == "classification"
    assert report["over_seeds"]["dev"]["count"] == 2
    assert report["files"]["dev"]["examples"] == 4
    assert any("held out" in note for note in report["notes"])
    assert "task: classification (guessed: it has texts and labels)" in done.err
    assert "columns: text = text, label = label" in done.err


def test_reasons_of_settings_are_told_before_the_first_epoch(
    run: Run, model: Path, file: Path, tmp_path: Path
) -> None:
    words = ("--out", tmp_path / "out", "--batch-size", "8", "--device", "cpu", "--patience", "1")
    done = run("finetune", model, file, "--dev", file, *words)
    lines = done.err.splitlines()
    reasons = [n for n, line in enumerate(lines) if "because of few examples: epochs" in line]
    epochs = [n for n, line in enumerate(lines) if "epoch 1 of" in line]
    assert len(reasons) == len(epochs) == 1
    assert reasons[0] < epochs[0]


def test_a_model_in_the_place_of_data(run: Run, file: Path, tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match="is a model: name the model first, then the data"):
        run("finetune", file, "bertsmith-small", "--out", tmp_path / "out")


def test_finetune_warns_as_check_does(run: Run, model: Path, tmp_path: Path) -> None:
    data = jsonl(tmp_path / "t.jsonl", [*rows(1) * 24, rows(2)[1]])
    words = ("--out", tmp_path / "out", "--epochs", "1", "--hold-out", "0", *FAST)
    done = run("finetune", model, data, *words)
    assert "train: 96.0% of the examples are 'city'; look at macro F1 or MCC" in done.err


def test_epochs_name_their_seed(run: Run, model: Path, file: Path, tmp_path: Path) -> None:
    words = ("--out", tmp_path / "out", "--epochs", "1", "--seed", "3", "--seeds", "2", *FAST)
    lines = run("finetune", model, file, *words).err.splitlines()
    told = [line.split(", loss")[0] for line in lines if ", loss" in line]
    assert told == ["seed 3, epoch 1 of 1", "seed 4, epoch 1 of 1"]


def test_an_epoch_covers_the_line_of_its_last_step(capsys: pytest.CaptureFixture[str]) -> None:
    progress = TrainingProgress((), quiet=False)
    progress.live = True
    progress.step(5, 100, 0.5)
    progress.step(10, 100, 0.25)
    progress.epoch({"seed": 0, "epoch": 1, "loss": 0.25})
    *_, step, epoch = capsys.readouterr().err.rstrip("\n").split("\r")
    assert step.rstrip().endswith("left")
    assert len(epoch) >= len(step)
    assert epoch.rstrip() == "seed 0, epoch 1 of 10, loss 0.2500"


def test_evaluate_and_compare(
    run: Run, trained: Path, model: Path, file: Path, tmp_path: Path
) -> None:
    done = run("evaluate", trained, file, "--json", "--report", tmp_path / "page.html")
    (found,) = done.rows
    assert found["models"][0]["scores"]["accuracy"] == 1.0
    assert 0.8 < found["interval"]["low"] < found["interval"]["high"] == 1.0  # few are correct
    content = (tmp_path / "page.html").read_text("utf-8")
    assert "Confusion matrix" in content
    assert f"95% interval {found['interval']['low']:.4f} to 1.0000" in content
    weak = tmp_path / "weak"
    run("finetune", model, file, "--out", weak, "--epochs", "1", "--learning-rate", "1e-8")
    (both,) = run("evaluate", weak, file, "--against", trained, "--json", "--draws", "200").rows
    assert both["comparison"]["difference"] > 0.2
    assert both["comparison"]["p_value"] < 0.05
    page = tmp_path / "other.html"
    shown = run("evaluate", weak, file, "--against", trained, "--draws", "200", "--report", page)
    assert "out is better" in shown.out
    assert f"written to {page}" in shown.out
    assert "columns: text = text, label = label" in shown.err
    (same,) = run("evaluate", trained, file, "--against", trained, "--json", "--draws", "50").rows
    assert same["comparison"]["p_value"] == 1.0
    shown = run("evaluate", trained, file, "--against", trained, "--draws", "50")
    assert "p = 1): not significant" in shown.out
    alone = tmp_path / "one_label.jsonl"  # neither f1 nor anything else may be missing
    alone.write_text("".join(json.dumps(row) + "\n" for row in rows()[::2]))
    shown = run("evaluate", trained, alone, "--against", weak, "--draws", "50")
    assert shown.status == 0
    assert "accuracy: " in shown.out


def test_a_correlation_of_one_example_is_not_available(
    run: Run, model: Path, tmp_path: Path
) -> None:
    many, one = tmp_path / "many.csv", tmp_path / "one.csv"
    many.write_text("text,score\n" + "".join(f"river {n},{n}.5\n" for n in range(8)))
    one.write_text("text,score\nriver,3.5\n")
    run("finetune", model, many, "--out", tmp_path / "out", "--epochs", "1", "--hold-out", "0")
    shown = run("evaluate", tmp_path / "out", one, "--draws", "20")
    assert "nan" not in shown.out
    assert re.search(r"count +1 ", shown.out)
    assert re.search(r"pearson +n/a", shown.out)
    assert "pearson: too few examples for a value and an interval" in shown.out
    (found,) = run("evaluate", tmp_path / "out", one, "--draws", "20", "--json").rows
    assert found["models"][0]["scores"]["pearson"] is None


def test_predict_streams_in_order(run: Run, trained: Path, file: Path, tmp_path: Path) -> None:
    done = run("predict", trained, file)
    assert [row["text"] for row in done.rows] == [row["text"] for row in rows()]
    assert "columns: text = text\n" in done.err
    assert [row["label"] for row in done.rows] == [row["label"] for row in rows()]
    assert [row["label_predicted"] for row in done.rows] == [row["label"] for row in rows()]
    lines = tmp_path / "lines.txt"
    lines.write_text("the old Paris number 3\nthe old bees number 4\n")
    out = tmp_path / "out.jsonl"
    run("predict", trained, lines, "--out", out)
    found = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [row["label"] for row in found] == ["city", "thing"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lines.txt", "out.jsonl"]


def test_a_file_is_predicted_portion_by_portion(
    run: Run, trained: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never more than one portion is held, and the output does not depend on its size."""
    from bertsmith.tasks import stream as predicting

    whole = run("predict", trained, file, "--column", "text=text").rows
    sizes: list[int] = []
    predict = predicting.predict

    def counted(bert: Any, examples: Any, *more: Any) -> Any:
        sizes.append(len(examples))
        return predict(bert, examples, *more)

    monkeypatch.setattr(predicting, "PORTION", 7)
    monkeypatch.setattr(predicting, "predict", counted)
    parts = run("predict", trained, file).rows
    assert sizes == [7] * 6 + [6]
    assert [(row["text"], row["label_predicted"]) for row in parts] == [
        (row["text"], row["label_predicted"]) for row in whole
    ]
    # A mistake far down the file: what was written stays on standard output, but no half file.
    late = tmp_path / "late.jsonl"
    late.write_text(file.read_text("utf-8") + '{"text": 5\n', "utf-8")
    out = tmp_path / "out.jsonl"
    with pytest.raises(BertsmithError, match="line 49: not valid JSON"):
        run("predict", trained, late, "--out", out)
    assert not out.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["late.jsonl"]


def test_every_role_of_a_column_has_an_option() -> None:
    from bertsmith.cli.tasks import ROLES
    from bertsmith.tasks.reading import readings

    assert set(ROLES) == {role for one in readings().values() for role in one.roles}
    assert {"text", "pair", "label", "tokens", "options", "anchor"} < set(ROLES)


def test_explanations_name_every_word(run: Run, trained: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("the old Paris number 3\n")
    (row,) = run("predict", trained, lines, "--explain").rows
    words = {one["word"]: one["score"] for one in row["explanation"]}
    assert list(words) == ["the", "old", "Paris", "number", "3"]
    assert any(words.values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("finetune", "{model}", "{none}", "--out", "{out}"), "none.csv"),
        (("finetune", "{none}", "{file}", "--out", "{out}"), "none.csv"),
        (("finetune", "{model}", "{file}", "--out", "{file}"), "a file of this name exists"),
        (("finetune", "{model}", "{file}", "--out", "{out}", "--column", "text=x"), "no column"),
        (("finetune", "{model}", "{file}", "--out", "{out}", "--sweep-rates", "a"), "numbers"),
        (
            ("finetune", "{model}", "{file}", "--out", "{out}", "--epochs", "0"),
            "epochs should be greater",
        ),
        (("finetune", "{model}", "{folder}x", "--out", "{out}"), "no such file or folder"),
        (("evaluate", "{model}", "{file}"), "no task head"),
        (("predict", "{trained}", "{folder}x"), "no such file or folder"),
        (("evaluate", "{trained}", "{none}"), "none.csv"),
        (("evaluate", "{trained}", "{file}", "--metric", "x"), "unknown score 'x'"),
        (("predict", "{trained}", "{none}"), "none.csv"),
        (("predict", "{trained}", "{file}", "--column", "text=x"), "no column 'x'"),
        (("predict", "{model}", "{file}"), "no task head"),
    ],
)
def test_mistakes(
    words: tuple[str, ...],
    message: str,
    run: Run,
    model: Path,
    trained: Path,
    file: Path,
    tmp_path: Path,
) -> None:
    (tmp_path / "folder").mkdir()
    places = {"model": model, "trained": trained, "file": file, "none": tmp_path / "none.csv"}
    places |= {"out": tmp_path / "out", "folder": tmp_path / "folder"}
    with pytest.raises(BertsmithError, match=message) as error:
        run(*(word.format(**places) for word in words))
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_mistake_is_one_line(program: Run, model: Path, tmp_path: Path) -> None:
    bad = jsonl(tmp_path / "t.jsonl", [{"text": "a", "label": "x"}] * 3)
    done = program("finetune", model, bad, "--out", tmp_path / "out", "--hold-out", "0")
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert "training needs at least two labels" in done.err


def test_columns_are_remembered(run: Run, model: Path, tmp_path: Path) -> None:
    """Columns that were named for training are those of predict and evaluate."""
    train, new = tmp_path / "train.csv", tmp_path / "new.csv"
    lines = [f"{n},note {n},the river {word} flows,{word}" for n, word in enumerate("ab" * 8)]
    header = "id,text,said,kind"
    train.write_text("\n".join([header, *lines]))
    new.write_text("\n".join([header, *lines[:4]]))
    out = tmp_path / "out"
    named = ["--column", "text=said", "--column", "label=kind"]
    run("finetune", model, train, "--out", out, "--epochs", "1", "--hold-out", "0", *named)
    said = run("predict", out, new)
    assert "text = said" in said.err
    (row,) = run("evaluate", out, new, "--json").rows
    assert row["models"][0]["scores"]["count"] == 4
    other = run("predict", out, new, "--column", "text=text")
    assert "text = text" in other.err
    new.write_text("text\nthe river\n")  # a file without that column
    assert "text = text" in run("predict", out, new).err


@pytest.mark.parametrize(
    ("verb", "option", "value"),
    [
        ("evaluate", "--draws", "0"),
        ("evaluate", "--limit", "-1"),
        ("predict", "--top", "0"),
        ("glue", "--limit", "-1"),
    ],
)
def test_numbers_have_bounds(verb: str, option: str, value: str, run: Run) -> None:
    shown = run(verb, "model", "file.csv", option, value)
    assert shown.status == 2
    assert f"Invalid value for '{option}': Input should be greater" in shown.err
