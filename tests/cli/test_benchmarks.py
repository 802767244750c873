"""`glue`, `squad` and `conll`, as a person runs them: tables, seeds, and going on from a file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

from bertsmith import BertsmithError
from bertsmith.cli.benchmarks import SeedProgress
from bertsmith.finetuning import benchmarks
from bertsmith.finetuning.benchmarks import Trial
from cli.conftest import Run

FAST = ("--learning-rate", "0.01", "--batch-size", "8", "--epochs", "1", "--device", "cpu")


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SST-2 and STS-B in small, QNLI without a training file."""
    folder = tmp_path_factory.mktemp("glue")
    for name, head, cells in (
        ("SST-2", "sentence\tlabel", lambda n: f"the old {('Paris', 'bees')[n % 2]}\t{n % 2}"),
        (
            "STS-B",
            "index\tsentence1\tsentence2\tscore",
            lambda n: f"{n}\tthe old {n // 2}\t{('Paris', 'bees')[n % 2]}\t{n % 2 * 5}.0",
        ),
    ):
        (folder / name).mkdir(parents=True)
        for split in ("train", "dev"):
            lines = [head, *(cells(n) for n in range(12))]
            (folder / name / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    (folder / "QNLI").mkdir()
    text = "index\tquestion\tsentence\tlabel\n0\twhy\tbees\tentailment\n"
    (folder / "QNLI" / "dev.tsv").write_text(text)
    return folder


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def test_glue(run: Run, model: Path, glue: Path) -> None:
    done = run("glue", model, glue, "--seeds", "2", *FAST)
    lines = done.out.splitlines()
    assert lines[0].split()[:5] == ["task", "score", "median", "mean", "deviation"]
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["sst2", "accuracy"],
        ["stsb", "pearson"],
        ["stsb", "spearman"],
    ]
    accuracy, pearson, spearman = (float(line.split()[2]) for line in lines[1:4])
    without = "mean of 2 tasks, without cola, mrpc, qqp, mnli, qnli, rte, wnli: "
    assert lines[4].startswith(without)
    mean = float(lines[4].removeprefix(without))
    assert mean == pytest.approx((accuracy + (pearson + spearman) / 2) / 2, abs=2e-4)
    assert "qnli: absent" in done.err
    assert "train.tsv" in done.err
    seeds = [line.split(":")[0] for line in done.err.splitlines() if line.endswith(" minutes")]
    assert seeds == ["sst2, seed 0", "sst2, seed 1", "stsb, seed 0", "stsb, seed 1"]
    one = run("glue", model, glue, "--task", "sst2", *FAST).out.splitlines()
    assert one[0].split()[:3] == ["task", "score", "value"]
    assert len(one) == 2  # there is nothing to take the mean of


def test_glue_tells_machines(run: Run, model: Path, glue: Path, tmp_path: Path) -> None:
    """All of it: every score over the seeds, a task's own number, and the mean of tasks."""
    file = tmp_path / "new" / "seeds.jsonl"
    words = ("--task", "sst2", "--task", "stsb", "--task", "rte", "--seeds", "3", "--json")
    sst2, stsb, rte, total = run("glue", model, glue, *words, "--out", file, *FAST).rows
    stored = [row["dev"]["pearson"] for row in lines_of(file) if row["task"] == "stsb"]
    found = stsb["scores"]["pearson"]
    assert found["count"] == len(stored) == 3
    assert (found["median"], found["mean"]) == (median(stored), pytest.approx(fmean(stored)))
    assert stsb["mean"] == fmean(one["median"] for one in stsb["scores"].values())
    assert (stsb["train"], stsb["scored"]) == (12, 12)
    assert (rte["scores"], rte["mean"]) == ({}, None)
    assert total["mean"] == fmean([sst2["mean"], stsb["mean"]])
    assert (total["tasks"], total["without"]) == (["sst2", "stsb"], ["rte"])


def test_one_rule_for_all_tasks(
    run: Run, model: Path, glue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs follow from the number of steps, and symmetric pairs are learned in both orders."""
    monkeypatch.setattr("bertsmith.tasks.labels.LabelTask.least_steps", 5)
    monkeypatch.setattr("bertsmith.finetuning.setup.MUON_STEPS", 6)
    folder, file = tmp_path / "model", tmp_path / "seeds.jsonl"
    shutil.copytree(model, folder)
    (folder / "bertsmith.json").write_text(json.dumps({"finetune": {"optimizer": "muon"}}))
    words = ("glue", folder, glue, "--task", "sst2", "--task", "stsb", "--device", "cpu")
    trained: list[Any] = []
    real = benchmarks.finetune
    monkeypatch.setattr(
        benchmarks, "finetune", lambda *a, **given: (trained.append(given), real(*a, **given))[1]
    )
    run(*words, "--out", file)
    assert [(one["optimizer"], one["epochs"], one["both_orders"]) for one in trained] == [
        ("adamw", 6, False),
        ("muon", 5, True),
    ]
    assert all("or as many as make" in row["settings"]["epochs"] for row in lines_of(file))
    first, second = (row["settings"]["optimizer"] for row in lines_of(file))
    assert (first, second) == ("muon; with fewer than 1000 steps adamw at 2 x", "muon")
    run(*words, "--epochs", "1", "--out", tmp_path / "one.jsonl")
    assert [(one["optimizer"], one["epochs"]) for one in trained[2:]] == [("adamw", 1), ("muon", 1)]
    first, second = (row["settings"]["optimizer"] for row in lines_of(tmp_path / "one.jsonl"))
    assert (first, second) == ("muon; with fewer than 1000 steps adamw at 2 x", "muon")


def test_seeds_are_as_many_single_runs(run: Run, model: Path, glue: Path, tmp_path: Path) -> None:
    together, alone = tmp_path / "together.jsonl", tmp_path / "alone.jsonl"
    words = ("glue", model, glue, "--task", "stsb", "--json", *FAST)
    (row,) = run(*words, "--seed", "1", "--seeds", "3", "--out", together).rows
    single = [run(*words, "--seed", seed).rows[0] for seed in "123"]
    values = [one["scores"]["pearson"]["mean"] for one in single]
    assert [one["dev"]["pearson"] for one in lines_of(together)] == values
    assert len(set(values)) == 3
    assert row["scores"]["pearson"]["median"] == median(values)
    for seed in "312":
        run(*words, "--seed", seed, "--out", alone)
    assert run(*words, "--seed", "1", "--seeds", "3", "--out", alone).rows == [row]


def test_it_goes_on_where_it_was_interrupted(
    run: Run, model: Path, glue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, finetune, trained = tmp_path / "seeds.jsonl", benchmarks.finetune, []

    def train(*given: Any, **settings: Any) -> Any:
        if len(trained) == 3:
            raise KeyboardInterrupt
        trained.append(settings["seed"])
        return finetune(*given, **settings)

    words = ("glue", model, glue, "--seeds", "2", *FAST)
    whole = run(*words)
    monkeypatch.setattr(benchmarks, "finetune", train)
    stopped = run(*words, "--out", file)
    assert (stopped.status, stopped.err.splitlines()[-1]) == (130, "bertsmith: interrupted")
    assert [(row["task"], row["seed"]) for row in lines_of(file)] == [
        ("sst2", 0),
        ("sst2", 1),
        ("stsb", 0),
    ]
    content = file.read_bytes()
    file.write_bytes(content + content.splitlines()[0][:50])  # as a full disk leaves a line
    trained.clear()
    done = run(*words, "--out", file)
    assert trained == [1]
    assert done.out == whole.out
    assert file.read_bytes().startswith(content)
    assert len(lines_of(file)) == 4
    stored = [line.split(":")[0] for line in done.err.splitlines() if line.endswith("(stored)")]
    assert stored == ["sst2, seed 0", "sst2, seed 1", "stsb, seed 0"]
    # More seeds, or fewer tasks, are no other settings.
    trained.clear()
    assert run(*words, "--seeds", "3", "--task", "stsb", "--out", file).status == 0
    assert trained == [2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--epochs", "2"), "sst2 was trained with epochs 1, not 2; choose another file"),
        (("--limit", "4"), "sst2 was trained with limit 0, not 4"),
        (("--dtype", "bfloat16"), "sst2 was trained with dtype float32, not bfloat16"),
        (("--layer-decay", "1"), "sst2 was trained with layer_decay 0.8, not 1"),
        (("--layer-decay", "3"), "layer_decay should be less than or equal to 1, not 3.0"),
    ],
)
def test_a_file_of_other_settings_is_refused(
    words: tuple[str, ...], message: str, run: Run, model: Path, glue: Path, tmp_path: Path
) -> None:
    file = tmp_path / "seeds.jsonl"
    usual = ("glue", model, glue, "--task", "sst2", "--out", file, *FAST)
    run(*usual)
    before = file.read_bytes()
    with pytest.raises(BertsmithError, match=message):
        run(*usual, *words)
    assert file.read_bytes() == before


def test_a_file_of_another_model_or_other_data_is_refused(
    run: Run, model: Path, glue: Path, tmp_path: Path
) -> None:
    file, other, data = tmp_path / "seeds.jsonl", tmp_path / "other", tmp_path / "data"
    words = ("--task", "sst2", "--out", file, *FAST)
    shutil.copytree(model, other)
    shutil.copytree(glue, data)
    run("glue", other, data, *words)
    assert "(stored)" in run("glue", model, glue, *words).err  # the same, elsewhere
    config = json.loads((other / "config.json").read_text("utf-8"))
    config["hidden_dropout_prob"] = 0.3
    (other / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(BertsmithError, match="holds scores of this model as it was before"):
        run("glue", other, data, *words)
    third = shutil.copytree(other, tmp_path / "third")
    with pytest.raises(BertsmithError, match=r"holds scores of another model, .*other; choose"):
        run("glue", third, data, *words)
    with (data / "SST-2" / "dev.tsv").open("a") as stream:
        stream.write("the old bees\t1\n")
    with pytest.raises(BertsmithError, match="the files of sst2 have changed since"):
        run("glue", model, data, *words)
    assert len(lines_of(file)) == 1


@pytest.mark.parametrize(
    "content",
    [
        "mine\n",
        "mine",
        '{"a": 1}',
        '{"task": "sst2", "seed": 0}\n',
        '{"task": "sst2", "seed": "0", "dev": {}, "model": {}, "settings": {}}\n',
        "[" * 100_000 + "\n",
        "\xff\n",
    ],
)
def test_a_file_of_something_else_stays_as_it_is(
    content: str, run: Run, model: Path, glue: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.txt"
    file.write_text(content, "latin-1")
    with pytest.raises(BertsmithError, match="line 1: not a finished seed of a benchmark"):
        run("glue", model, glue, "--task", "sst2", "--out", file, *FAST)
    assert file.read_text("latin-1") == content


def test_progress_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    watch = SeedProgress()
    watch.live = True
    watch.begin("mrpc", 4)
    watch.step(5, 1200, 0.5)
    watch.epoch({"seed": 4, "epoch": 1})
    trial = Trial("mrpc", 4, {"accuracy": 0.75, "f1": 0.8, "mcc": 0.1}, None, 12.345)
    watch.finish(trial, ("accuracy", "f1"), stored=False)
    step, line = capsys.readouterr().err.split("\r")[1:]
    assert step.rstrip() == "mrpc, seed 4: step 5 of 1,200, loss 0.5000"
    assert line.rstrip() == "mrpc, seed 4: accuracy 0.7500, f1 0.8000, 12.3 minutes"
    assert len(line) > len(step)  # nothing of it is left to be seen


def test_data_of_the_environment(
    run: Run, model: Path, glue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTSMITH_DATA", str(glue))
    (row,) = run("glue", model, "--task", "sst2", "--json", *FAST).rows
    assert row["train"] == 12
    monkeypatch.setenv("BERTSMITH_DATA", str(tmp_path))
    for name in ("squad_dev", "SQuAD", "conll2003_en"):
        (tmp_path / name).mkdir()
    squad_file(tmp_path / "SQuAD")
    (row,) = run("squad", model, "--json", *FAST).rows
    assert row["task"] == "squad v1.1"
    tagged_files(tmp_path / "conll2003_en")
    row, _ = run("conll", model, "--json", *FAST).rows
    assert row["task"] == "conll2003_en"
    assert run("glue", model, glue, "--task", "sst2", *FAST).status == 0  # what is given counts


@pytest.mark.parametrize(
    ("verb", "home", "message"),
    [
        ("glue", None, "no data: give the folder, or name one by setting BERTSMITH_DATA"),
        ("squad", None, "no data: give the folder"),
        ("conll", "", "no data: give the folder"),
        ("glue", "nowhere", "BERTSMITH_DATA is nowhere, which is not a folder"),
        ("glue", ".", "there is no task of GLUE in it"),
        ("squad", ".", "no squad or squad_dev in it; give the folder"),
        ("conll", ".", "no conll2003_en or conll2003 or conll-2003 in it; give the folder"),
    ],
)
def test_no_data_is_one_line(
    verb: str,
    home: str | None,
    message: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: Run,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BERTSMITH_DATA", raising=False)
    if home is not None:
        monkeypatch.setenv("BERTSMITH_DATA", home)
    done = program(verb, model)
    assert done.status == 2
    assert message in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("glue", "{model}", "{none}"), "no such folder"),
        (("glue", "{model}", "{folder}"), "there is no task of GLUE"),
        (("glue", "{model}", "{folder}", "--task", "x"), "unknown GLUE task"),
        (("glue", "{model}", "{glue}", "--out", "/dev/full"), "not a regular file"),
        (("glue", "{model}", "{glue}", "--out", "x" * 300), "cannot be written"),
        (("glue", "{model}", "{glue}", "--seeds", "0"), "seeds must be from 1 to 1000"),
        (
            ("glue", "{model}", "{glue}", "--seed", "-1"),
            "seed should be greater than or equal to 0, not -1",
        ),
        (("glue", "{none}", "{glue}", "--out", "{none}"), "none.csv: no such directory"),
        (("glue", "{model}", "{glue}", "--out", "{folder}"), "folder: not a regular file"),
        (("glue", "{model}", "{glue}", "--out", "{model}/config.json/x"), "cannot be written"),
        (("squad", "{model}", "{folder}"), "there is no dev-v1.1.json or dev-v2.0.json"),
        (("squad", "{model}", "{folder}", "--version", "3"), "there is no dev-v3.json"),
        (
            ("glue", "{model}", "{glue}", "--matrix-learning-rate", "0.1"),
            "is for the optimizer muon",
        ),
        (("conll", "{model}", "{none}"), "no such folder"),
    ],
)
def test_mistakes(
    words: tuple[str, ...], message: str, run: Run, model: Path, glue: Path, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    places = {"model": model, "glue": glue, "none": tmp_path / "none.csv"}
    places["folder"] = tmp_path / "folder"
    with pytest.raises(BertsmithError, match=message) as error:
        run(*(word.format(**places) for word in words))
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_task_without_a_dev_file_is_absent(
    run: Run, model: Path, glue: Path, tmp_path: Path
) -> None:
    shutil.copytree(glue, tmp_path / "glue")
    (tmp_path / "glue" / "SST-2" / "dev.tsv").unlink()
    done = run("glue", model, tmp_path / "glue", *FAST)
    assert "sst2: absent" in done.err
    assert done.out.splitlines()[1].split()[:2] == ["stsb", "pearson"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"hello\n", "no column 'label'"),
        (b"\xe9\n", "--encoding cp1252 .in Python encoding='cp1252'."),
    ],
)
def test_where_nothing_can_be_scored_it_fails(
    run: Run, model: Path, tmp_path: Path, content: bytes, reason: str
) -> None:
    (tmp_path / "glue_rte").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "glue_rte" / name).write_bytes(content)
    with pytest.raises(BertsmithError, match=rf"rte: absent: .*{reason}"):
        run("glue", model, tmp_path, "--task", "rte")


def squad_file(folder: Path) -> None:
    """A dev file of six articles."""
    articles = []
    for number in range(6):
        passage = f"the old Paris flows {number}"
        answer = {"text": "Paris", "answer_start": 8}
        qas = [{"id": str(number), "question": "why", "answers": [answer]}]
        articles.append({"title": f"t{number}", "paragraphs": [{"context": passage, "qas": qas}]})
    content = {"version": "1.1", "data": articles}
    (folder / "dev-v1.1.json").write_text(json.dumps(content))


def tagged_files(folder: Path) -> None:
    """A training and a dev file of eight sentences each."""
    for name in ("train", "valid"):
        (folder / f"{name}.txt").write_text("Paris B-LOC\nflows O\n\nthe O\nbees O\n\n" * 4)


def test_squad(run: Run, model: Path, tmp_path: Path) -> None:
    squad_file(tmp_path)
    words = ("squad", model, tmp_path, "--json", "--out", tmp_path / "seeds.jsonl", *FAST)
    (row,) = run(*words).rows
    assert row["task"] == "squad v1.1"
    assert "not the official split" in row["note"]
    assert (row["train"], row["scored"]) == (5, 1)
    assert set(row["scores"]) == {"exact", "f1"}
    again = run(*words)
    assert again.rows == [row]
    assert "(stored)" in again.err


def test_a_tuned_threshold_is_told(run: Run, model: Path, tmp_path: Path) -> None:
    squad_file(tmp_path)
    content = json.loads((tmp_path / "dev-v1.1.json").read_text("utf-8"))
    for article in content["data"]:
        for passage in article["paragraphs"]:
            asked = {"id": f"none {article['title']}", "question": "Why?", "answers": []}
            passage["qas"].append({**asked, "is_impossible": True})
    (tmp_path / "dev-v2.0.json").write_text(json.dumps(content), "utf-8")
    first, second = run("squad", model, tmp_path, "--json", *FAST).rows
    assert (first["task"], second["task"]) == ("squad v1.1", "squad v2.0")
    assert "threshold" not in first["note"]
    assert "the threshold for no answer was tuned on the scored file" in second["note"]


def test_conll(run: Run, model: Path, tmp_path: Path) -> None:
    tagged_files(tmp_path)
    words = ("conll", model, tmp_path, "--limit", "4", "--json", *FAST)
    first, second = run(*words).rows
    assert set(first["scores"]) == {"f1", "precision", "recall"}
    assert (first["train"], first["scored"]) == (4, 8)
    assert "absent: no test file" in second["note"]
