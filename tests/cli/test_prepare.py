"""`bertsmith prepare` as a person and a machine see it."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertsmith.corpus import Corpus
from bertsmith.errors import BertsmithError
from cli.conftest import Run
from corpus.texts import documents, files, write
from tasks.words import LINES


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "a.txt", documents(60))


def test_for_a_person(run: Run, model: Path, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--tokenizer", model, "--out", out, "--held-out", "0.2", "--workers", "0"]
    shown = run("prepare", source, *words)
    assert shown.status == 0
    table = [line.split() for line in shown.out.splitlines()]
    assert table[0] == ["split", "documents", "sentences", "tokens", "shards"]
    corpus = Corpus.open(out)
    counts = (corpus.documents, corpus.sentences, corpus.tokens, 1)
    assert table[1] == ["train", *(f"{count:,}" for count in counts)]
    assert table[2][0] == "held_out"
    assert "note: documents read: 60" in shown.err
    assert "unknown: is this" not in shown.err
    assert "was prepared before" not in shown.err
    again = run("prepare", source, *words)
    assert again.out == shown.out
    assert f"{out}: was prepared before; nothing is changed" in again.err


def test_short_documents_of_a_folder(run: Run, model: Path, tmp_path: Path) -> None:
    """Paragraphs that were taken for documents are noticed."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.md", "b.md"):
        write(folder / name, [["A dog barks."]] * 20)
    words = ["prepare", folder, "--tokenizer", model, "--held-out", "0", "--workers", "0"]
    shown = run(*words, "--out", tmp_path / "a")
    assert "tokens on average; with --documents files, each text file is one" in shown.err
    shown = run(*words, "--out", tmp_path / "b", "--documents", "files")
    assert "on average" not in shown.err
    assert Corpus.open(tmp_path / "b").documents == 2
    write(folder / "c.jsonl", [["A dog barks."]] * 20)  # each of its lines is a document
    assert "on average" not in run(*words, "--out", tmp_path / "c").err


def test_a_tokenizer_of_another_language(run: Run, model: Path, tmp_path: Path) -> None:
    words = ["--tokenizer", model, "--out", tmp_path / "out", "--workers", "0"]
    text = write(tmp_path / "a.txt", [["नदी पुराने घर के पास बहती है, the river."]] * 20)
    shown = run("prepare", text, *words)
    assert "of the tokens are unknown: is this the tokenizer of this text?" in shown.err
    text = write(tmp_path / "b.txt", [["नदी पुराने घर के पास बहती है।"]] * 20)
    with pytest.raises(BertsmithError, match="documents of unknown tokens only, left out: 20"):
        run("prepare", text, *words[:3], tmp_path / "other", *words[4:])


@pytest.mark.parametrize("name", ["a.csv", "a.json", "a.tsv.gz", "A.PDF"])
def test_tables_are_not_read_as_text(name: str, run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_text("text,label\na text,good\n")
    with pytest.raises(BertsmithError, match="files are not read here; save their texts as"):
        run("prepare", tmp_path / name, "--tokenizer", model, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_for_a_machine(run: Run, model: Path, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--tokenizer", model, "--out", out, "--held-out", "0", "--workers", "0", "--json"]
    (row,) = run("prepare", source, *words, "--min-length", "100").rows
    assert row["out"] == str(out)
    assert row["splits"]["train"]["documents"] == Corpus.open(out).documents
    dropped = row["ledger"]["documents shorter than 100 characters, left out"]
    assert row["splits"]["train"]["documents"] + dropped == 60


def test_options_reach_the_work(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LINES, "utf-8")
    words = ["--tokenizer", model, "--out", tmp_path / "out", "--workers", "0"]
    words += ["--sentences", "lines", "--repair", "--duplicates", "near", "--similarity", "0.9"]
    words += ["--max-length", "99999", "--language", "en", "--seed", "3", "--text-field", "body"]
    assert run("prepare", tmp_path / "a.txt", *words).status == 0
    settings = Corpus.open(tmp_path / "out").manifest.settings
    wanted = {"sentences": "lines", "repair": True, "duplicates": "near", "similarity": 0.9}
    wanted |= {"max_length": 99999, "language": "en", "seed": 3, "text_field": "body"}
    assert wanted.items() <= settings.items()


def test_check(run: Run, model: Path, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("prepare", source, "--tokenizer", model, "--out", out, "--workers", "0")
    shown = run("prepare", "--check", out)
    assert (shown.status, shown.out.count("\n")) == (0, 1)
    assert "files are as they were written" in shown.out
    shard = out / "train" / "tokens-00000.npy"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    shown = run("prepare", "--check", out)
    assert shown.status == 1
    assert shown.out == f"{shard} is damaged: its SHA-256 sum is not the manifest's;" + (
        " restore the file, or prepare the corpus again\n"
    )
    (row,) = run("prepare", "--check", out, "--json").rows
    assert row["damaged"] == [shown.out.strip()]


def test_mistakes(run: Run, shell: Run, model: Path, source: Path, tmp_path: Path) -> None:
    for words in (["prepare"], ["prepare", source], ["prepare", source, "--out", tmp_path / "o"]):
        with pytest.raises(BertsmithError, match="name files, --tokenizer and --out"):
            run(*words)
    with pytest.raises(BertsmithError, match="nowhere: no such file"):
        run("prepare", source, "--tokenizer", tmp_path / "nowhere", "--out", tmp_path / "o")
    shown = shell("prepare", tmp_path / "no.txt", "--tokenizer", model, "--out", tmp_path / "o")
    assert shown.status == 2
    assert shown.err.startswith(f"bertsmith: {tmp_path}/no.txt: cannot be read")
    assert shown.err.count("\n") == 1


def command(model: Path, source: Path, out: Path) -> list[str]:
    words = ["prepare", source, "--tokenizer", model, "--out", out, "--workers", "2"]
    return [sys.executable, "-m", "bertsmith.cli", *map(str, words)]


@pytest.mark.slow
def test_stopped_by_a_person(model: Path, tmp_path: Path) -> None:
    """Ctrl-C goes to every process of the terminal; one line tells how to go on."""
    source = write(tmp_path / "a.txt", documents(4000) * 8)
    out = tmp_path / "out"
    process = subprocess.Popen(
        command(model, source, out), start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    while not list(out.glob("work/*.npz")) and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == f"\nbertsmith: stopped; the same command continues {out}\n"
    assert not (out / "manifest.json").exists()
    done = subprocess.run(command(model, source, out), capture_output=True, text=True)
    assert done.returncode == 0
    subprocess.run(command(model, source, tmp_path / "whole"), check=True, capture_output=True)
    assert files(out) == files(tmp_path / "whole")


def test_a_bar_on_a_terminal(model: Path, source: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(model, source, tmp_path / "out"), stderr=theirs, stdout=subprocess.DEVNULL
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:  # the other side has closed
            break
        if not data:
            break
        seen += data
    os.close(ours)
    assert process.wait() == 0
    assert re.search(rb"tokens.*100%", seen)
    assert re.search(rb"shards.*100%", seen)


def test_text_is_added_and_benchmark_texts_are_left_out(
    run: Run, model: Path, source: Path, tmp_path: Path
) -> None:
    test = " ".join(LINES.split()[:20])
    write(tmp_path / "b.txt", [*documents(10, 7), [f"So: {test.upper()}"]])
    (tmp_path / "test.csv").write_text(f'text,label\n"{test}",1\n')
    out, fast = tmp_path / "out", ["--workers", "0", "--held-out", "0"]
    words = ["--tokenizer", model, "--out", out, "--decontaminate", tmp_path / "test.csv", *fast]
    assert run("prepare", source, *words, "--overlap", "12").status == 0
    added = run("prepare", tmp_path / "b.txt", "--add", out, "--workers", "0")
    assert "note: 10 documents were added" in added.err
    assert "documents with 12 words in a row of test.csv, left out: 1" in added.err
    assert Corpus.open(out, check=True).documents == 70
    again = run("prepare", tmp_path / "b.txt", source, "--add", out, "--json")
    assert '"added": 0' in again.out
    assert "nothing was added" in again.err
    for words in (
        ["--add", out, "--tokenizer", model],
        ["--add", out, "--overlap", "9"],
        ["--add", tmp_path / "none"],
    ):
        with pytest.raises(BertsmithError, match=r"tokenizer is used|--overlap 12, which|no such"):
            run("prepare", tmp_path / "b.txt", *words)
    with pytest.raises(BertsmithError, match="--add takes files"):
        run("prepare", "--add", out)
