"""`bertsmith check` as a person runs it: what it says, and its exit status."""

from pathlib import Path

import pytest

from cli.conftest import Run

GOOD = "text,label\n" + "".join(f"text number {n},{'yes' if n % 2 else 'no'}\n" for n in range(30))


def write(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def test_good_data_is_status_0(run: Run, tmp_path: Path) -> None:
    shown = run("check", write(tmp_path / "train.csv", GOOD))
    assert shown.status == 0
    assert "task: classification (guessed: it has texts and labels)" in shown.out
    assert "columns: text = text, label = label" in shown.out
    assert "no findings" in shown.out
    assert shown.err == ""


def test_errors_are_status_1(run: Run, tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", GOOD)
    dev = write(tmp_path / "dev.csv", "text,label\nnew,maybe\ntext number 3,yes\n")
    shown = run("check", train, "--dev", dev)
    assert shown.status == 1
    assert "error   dev: 1 example with the label 'maybe', which is not in train" in shown.out
    assert f"{dev}, line 2" in shown.out
    assert "dev: 1 example also in train (50.0%)" in shown.out
    found = run("check", train, "--dev", dev, "--json")
    (report,) = found.rows
    assert found.status == 1
    assert report["task"] == "classification"
    assert report["splits"]["train"]["labels"] == {"no": 15, "yes": 15}
    worst = report["findings"][0]
    assert (worst["severity"], worst["code"]) == ("error", "unseen-label")
    assert worst["where"] == [f"{dev}, line 2"]


@pytest.mark.parametrize(
    ("name", "content", "words", "fault"),
    [
        ("a.csv", "", [], "a.csv is empty"),
        ("a.conll", "Ada B-PER\nran\n", [], "line 2: 1 column where the lines before have 2"),
        ("a.csv", GOOD, ["--column", "label=lable"], "did you mean 'label'?"),
        ("a.csv", GOOD, ["--model", "no/such/model/here"], "no such directory"),
        ("a.csv", GOOD, ["--dev", "nothing.csv"], "nothing.csv: no such file"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_status_2(
    name: str,
    content: str,
    words: list[str],
    fault: str,
    tmp_path: Path,
    program: Run,
) -> None:
    shown = program("check", write(tmp_path / name, content), *words)
    assert shown.status == 2
    assert shown.out == ""
    assert shown.err.startswith("bertsmith: ")
    assert fault in shown.err
    assert shown.err.count("\n") == 1


def test_folders(run: Run, tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", GOOD)
    write(tmp_path / "valid.csv", "text,label\nnew,yes\nother,no\n")
    write(tmp_path / "test.csv", "text\nx\n")
    shown = run("check", tmp_path, "--column", "label=label", "--json")
    assert shown.status == 0
    splits = shown.rows[0]["splits"]
    assert {name: split["examples"] for name, split in splits.items()} == {
        "train": 30,
        "dev": 2,
        "test": 1,
    }
    assert splits["test"]["with_gold"] == 0
    splits = run("check", tmp_path, "--dev", train, "--json").rows[0]["splits"]
    assert splits["dev"]["examples"] == 30


def test_lengths_for_a_model(run: Run, model: Path, tmp_path: Path) -> None:
    long = "the river " * 60
    path = write(tmp_path / "train.csv", GOOD + f"{long},yes\n")
    shown = run("check", path, "--model", model)
    assert shown.status == 0
    assert "median tokens" in shown.out
    assert "note    train: 1 input longer than the model's 64 tokens (3.2%)" in shown.out


def test_pages_and_decisions_beside_json(run: Run, model: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "train.csv", GOOD)
    page, decisions = tmp_path / "wrong.html", tmp_path / "wrong.jsonl"
    outputs = ("--report", page, "--out", decisions)
    [content] = run("check", path, "--model", model, *outputs, "--json").rows
    assert "wrong_labels" in content
    assert page.exists()
    assert f"written to {decisions}" in run("check", path, "--model", model, *outputs).out
    numbers = write(
        tmp_path / "n.csv", "text,score\n" + "".join(f"a {n},{n / 7}\n" for n in range(9))
    )
    shown = run("check", numbers, "--model", model, "--report", tmp_path / "none.html")
    assert "wrong labels were not looked for" in shown.err
    assert "written to" not in shown.out


def test_a_page_of_a_learning_curve_beside_json(run: Run, model: Path, tmp_path: Path) -> None:
    path, page = (
        write(tmp_path / "train.csv", GOOD + GOOD[11:].replace("text", "page")),
        tmp_path / "c.html",
    )
    [content] = run("learning-curve", model, path, "--report", page, "--json").rows
    assert content["points"]
    assert page.exists()


def test_wrong_labels_of_which_a_row_has_several(run: Run, model: Path, tmp_path: Path) -> None:
    rows = "".join(f"text {n},{n % 2},{n % 3 % 2}\n" for n in range(12))
    shown = run("check", write(tmp_path / "t.csv", "text,odd,third\n" + rows), "--model", model)
    assert "probably wrong: 0" not in shown.out
    table = shown.out.partition("likelier")[2]
    assert "[" not in table
    assert "none" in table


def test_many_labels_are_not_all_shown(run: Run, tmp_path: Path) -> None:
    rows = "".join(f"text {n},label-{n % 30}\n" for n in range(300))
    shown = run("check", write(tmp_path / "train.csv", "text,label\n" + rows))
    assert "and 10 more labels; --json has all" in shown.out


def test_names_of_numbers(run: Run, tmp_path: Path) -> None:
    rows = '{"tokens": ["Ada", "ran"], "ner_tags": [1, 0]}\n' * 5
    path = write(tmp_path / "train.jsonl", rows)
    named = run("check", path, "--label-names", "O,B-PER", "--json").rows[0]
    assert named["splits"]["train"]["labels"] == {"B-PER": 5, "O": 5}
    assert named["splits"]["train"]["scheme"] == "bio"
