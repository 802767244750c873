"""`bertsmith runs`: one run, several, pages, JSON, mistakes."""

from pathlib import Path

import pytest

from bertsmith.errors import BertsmithError
from cli.conftest import Run
from pages.runs import make_run


def test_one_run(run: Run, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "first")
    shown = run("runs", folder)
    assert shown.status == 0
    rows = {line[:30].strip(): line[30:].strip() for line in shown.out.splitlines()}
    assert rows["run"] == "first"
    assert rows["finished"] == "yes"
    assert rows["tokens"] == "4,000"
    assert rows["time"] == "24 s"
    assert rows["speed (median step)"] == "200 tokens/s"
    assert rows["held-out loss, Masked LM"] == "4.0000 nats"
    assert rows["word frequencies alone"] == "6.5000 nats"
    assert shown.err == ""
    assert not (folder / "report.html").exists(), "looking writes nothing"


def test_several_runs_and_a_page(run: Run, tmp_path: Path) -> None:
    first = make_run(tmp_path / "first")
    second = make_run(tmp_path / "second", optimizer="muon", unigram=7.0)
    page = tmp_path / "page.html"
    shown = run("runs", first, second, "--html", page)
    assert shown.out.splitlines()[0].split() == ["run", "first", "second"]
    assert "train.optimizer" in shown.out
    assert shown.out.splitlines()[-1] == f"written to {page}"
    assert "cannot be compared directly" in shown.err
    assert "Runs first, second" in page.read_text("utf-8")
    run("runs", first, "--html", page)
    assert "Run first" in page.read_text("utf-8")


def test_json(run: Run, tmp_path: Path) -> None:
    folders = [make_run(tmp_path / "first"), make_run(tmp_path / "second", optimizer="muon")]
    first, second = run("runs", *folders, "--json").rows
    assert first["run"] == str(folders[0])
    assert first["held_out_masked_lm"] == 4.0
    assert first["finished"] is True
    assert second["recipe"] == {"train.optimizer": "muon"}
    assert run("runs", folders[0], "--json").rows[0]["recipe"] == {}


def test_damage_is_a_note(run: Run, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "first")
    with (folder / "log.jsonl").open("a") as log:
        log.write('garbage\n{"step": 41, "torn')
    shown = run("runs", folder)
    assert shown.status == 0
    assert shown.err == "note: first: log.jsonl: 1 damaged line is left out\n"


def test_mistakes(run: Run, tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match=r"must end in \.html"):
        run("runs", tmp_path, "--html", tmp_path / "page.txt")
    with pytest.raises(BertsmithError, match="contains no run"):
        run("runs", tmp_path)
    folder = make_run(tmp_path / "first")
    with pytest.raises(BertsmithError, match="cannot be written"):
        run("runs", folder, "--html", tmp_path / "nowhere" / "page.html")
    assert run("runs").status == 2


def test_a_folder_without_a_run_is_one_line(shell: Run, tmp_path: Path) -> None:
    shown = shell("runs", tmp_path)
    assert shown.status == 2
    assert shown.out == ""
    assert shown.err.startswith(f"bertsmith: {tmp_path}: contains no run")
    assert shown.err.count("\n") == 1
