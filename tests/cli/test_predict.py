"""`predict` and `embed` on files as people have them, and on texts."""

from __future__ import annotations

import csv
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import bertsmith
from bertsmith import BertsmithError, load
from cli.conftest import Run

FAST = ("--epochs", "1", "--hold-out", "0", "--batch-size", "8", "--device", "cpu")
TEXTS = ["the old river", "a new mayor", "the mayor of a river"]


def tuned(folder: Path, model: Path, rows: list[dict[str, object]]) -> Path:
    """A model that has been trained for a step or two."""
    from typer.testing import CliRunner

    from bertsmith.cli.app import app

    data = folder / "train.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    words = ["finetune", model, data, "--out", folder / "out", *FAST]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return folder / "out"


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    rows: list[dict[str, object]] = [
        {"text": f"{TEXTS[n % 2]} {n}", "label": "ab"[n % 2]} for n in range(8)
    ]
    return tuned(tmp_path_factory.mktemp("classifier"), model, rows)


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    rows: list[dict[str, object]] = [
        {"text": "the mayor of a river", "entities": [[4, 9, "PER"]]} for _ in range(8)
    ]
    return tuned(tmp_path_factory.mktemp("tagger"), model, rows)


def test_only_answers_have_a_number(run: Run, classifier: Path) -> None:
    with pytest.raises(BertsmithError, match="--top is for question answering; this model's task"):
        run("predict", classifier, TEXTS[0], "--top", "2")


def test_labels_are_for_models_that_take_any(
    run: Run, classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BertsmithError, match="labels are for models that choose among given ones"):
        run("predict", classifier, TEXTS[0], "--labels", "old,new")
    with pytest.raises(BertsmithError, match="labels are for models"):
        bertsmith.predict(classifier, TEXTS, labels=["old", "new"])
    with pytest.raises(BertsmithError, match="--labels takes several names between commas"):
        run("predict", classifier, TEXTS[0], "--labels", "old")
    from bertsmith.tasks.registry import TASKS
    from bertsmith.tasks.task import Prediction

    usual = TASKS["classification"]

    class Given(type(usual)):  # type: ignore[misc]
        name, labels_given = usual.name, True
        labels: tuple[str, ...] = ()

        def with_labels(self, labels: list[str]) -> Given:
            task = Given()
            task.labels = tuple(labels)
            return task

        def predict(self, bert: object, examples: list[object], top: int = 1) -> list[Prediction]:
            return [Prediction(self.labels[-1], 1.0, {"label": self.labels[-1]}) for _ in examples]

    monkeypatch.setitem(TASKS, "given", Given())
    assert run("predict", classifier, TEXTS[0], "--labels", "old, new").rows[0]["label"] == "new"
    rows = bertsmith.predict(classifier, TEXTS, labels=["old", "new"])
    assert [row["label"] for row in rows] == ["new"] * 3


def test_every_column_is_kept(run: Run, classifier: Path, tmp_path: Path) -> None:
    source = tmp_path / "reviews.csv"
    rows = [["id", "review", "label", "date"]]
    rows += [[str(n), text, "a", "2020"] for n, text in enumerate(TEXTS)]
    rows += [["9", "NaN", "b", "2021"], ["10", "", "b", ""], ["11", " ", "b", ""]]
    with source.open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    done = run("predict", classifier, source, "--out", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8") as stream:
        found = list(csv.DictReader(stream))
    assert list(found[0]) == [*rows[0], "label_predicted", "scores", "confidence"]
    assert [row["id"] for row in found] == ["0", "1", "2", "9", "10", "11"]
    assert {row["label_predicted"] for row in found[:3]} <= {"a", "b"}
    assert {row["label_predicted"] for row in found[3:]} == {""}
    assert found[3]["review"] == ""
    assert "rows without a text: 3" in done.err
    assert f"6 rows written to {tmp_path / 'out.csv'}" in done.err
    piped = run("predict", classifier, "-", text=source.read_bytes())
    assert [row["id"] for row in piped.rows] == ["0", "1", "2", "9", "10", "11"]
    assert piped.rows[3]["label_predicted"] is None


def test_csv_stays_as_it_is(run: Run, classifier: Path, tmp_path: Path) -> None:
    """Semicolons stay, and there is a confidence of a readable length."""
    source = tmp_path / "reviews.csv"
    source.write_text("id;review\n" + "".join(f"{n};{text}\n" for n, text in enumerate(TEXTS)))
    run("predict", classifier, source, "--out", tmp_path / "out.csv")
    header, *rows = (tmp_path / "out.csv").read_text("utf-8").splitlines()
    assert header == "id;review;label;scores;confidence"
    assert [row.split(";")[1] for row in rows] == TEXTS
    for row in rows:
        label, scores, confidence = next(csv.reader([row], delimiter=";"))[2:]
        assert 0.5 <= float(confidence) == json.loads(scores)[label]
        assert len(confidence) <= 9
    run("predict", classifier, source, "--out", tmp_path / "out.tsv")
    assert (tmp_path / "out.tsv").read_text("utf-8").startswith("id\treview\tlabel")


def test_texts(run: Run, classifier: Path) -> None:
    (row,) = run("predict", classifier, TEXTS[0]).rows
    assert row["text"] == TEXTS[0]
    assert row["label"] in ("a", "b")
    (row,) = run("predict", classifier, TEXTS[0], "--pair", TEXTS[1]).rows
    assert row["pair"] == TEXTS[1]
    for empty in ("", " "):
        with pytest.raises(BertsmithError, match="the text is empty"):
            run("predict", classifier, empty)
    for missing in ("missing.csv", "folder/missing", "train-*.parquet"):
        with pytest.raises(BertsmithError, match="no such file"):
            run("predict", classifier, missing)


def test_from_python(classifier: Path, tmp_path: Path) -> None:
    rows = [{"id": n, "review": text} for n, text in enumerate(TEXTS)]
    found = bertsmith.predict(classifier, rows)
    assert [(row["id"], row["review"]) for row in found] == [(n, t) for n, t in enumerate(TEXTS)]
    assert all(row["label"] in ("a", "b") for row in found)
    out = tmp_path / "out.jsonl"
    assert bertsmith.predict(load(classifier), rows, out) == []
    assert [json.loads(line) for line in out.read_text("utf-8").splitlines()] == found


@pytest.mark.parametrize("kind", ["spacy", "prodigy", "doccano"])
def test_spans_are_written_back(kind: str, run: Run, tagger: Path, tmp_path: Path) -> None:
    from bertsmith.tasks.read import read_data

    source, out = tmp_path / "texts.txt", tmp_path / "out.jsonl"
    source.write_text("\n".join(TEXTS), "utf-8")
    run("predict", tagger, source, "--out", out, "--format", kind)
    expected = run("predict", tagger, source).rows
    entities = [[[e["start"], e["end"]] for e in row["entities"]] for row in expected]
    records = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    for record, places in zip(records, entities, strict=True):
        fields = record[1] if kind == "spacy" else record
        spans = next(fields[key] for key in ("entities", "label", "spans") if key in fields)
        spelled = [[s["start"], s["end"]] if isinstance(s, dict) else s[:2] for s in spans]
        assert spelled == places
    if any(entities):
        assert len(read_data(out, "tagging")) == len(TEXTS)


def test_embed_reads_the_text_column(run: Run, model: Path, tmp_path: Path) -> None:
    vectors = load(model).embed(TEXTS)
    table = tmp_path / "a.csv"
    table.write_text("id,review\n" + "".join(f"{n},{text}\n" for n, text in enumerate(TEXTS)))
    lines = tmp_path / "b.ndjson"
    lines.write_text("".join(json.dumps({"text": text, "id": 4}) + "\n" for text in TEXTS))
    for source in (table, lines):
        done = run("embed", model, "--file", source, "--out", tmp_path / "out.npy")
        assert np.allclose(np.load(tmp_path / "out.npy"), vectors, atol=1e-6)
        assert "columns not used: id" in done.err
    run("embed", model, "--file", table, "--out", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(row["id"], row["review"]) for row in rows] == [
        (str(n), text) for n, text in enumerate(TEXTS)
    ]


def test_embed_reads_questions_and_tagged_words(run: Run, model: Path, tmp_path: Path) -> None:
    squad, words = tmp_path / "squad.json", tmp_path / "words.conll"
    asked = {"id": "1", "question": "Who ran?", "answers": []}
    paragraphs = [{"context": "Ada ran.", "qas": [asked]}]
    squad.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    words.write_text("Ada B-PER\nran O\n\nBees O\n")
    for file, texts in ((squad, ["Who ran?"]), (words, ["Ada ran", "Bees"])):
        rows = run("embed", model, "--file", file, "--json").rows
        assert [row["text"] for row in rows] == texts


def test_embed_holds_a_portion(run: Run, model: Path, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Memory does not grow with the file."""
    from bertsmith.tasks import stream

    monkeypatch.setattr(stream, "PORTION", 64)
    peaks = []
    for count in (128, 1024):
        path = tmp_path / "lines.txt"
        path.write_text("the river\n" * count)
        tracemalloc.start()
        run("embed", model, "--file", path, "--out", tmp_path / "out.npy")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert np.load(tmp_path / "out.npy").shape == (1024, 16)
    assert peaks[1] < peaks[0] + 200_000


def test_a_model_that_knows_none_of_the_labels_is_not_scored(
    run: Run, classifier: Path, tmp_path: Path
) -> None:
    source = tmp_path / "other.csv"
    source.write_text("text,label\nGood bread.,fine\nBad bread.,poor\n")
    with pytest.raises(BertsmithError, match="knows none of the labels") as caught:
        run("evaluate", classifier, source)
    assert str(caught.value).startswith(f"{classifier}: ")
    assert "predicts a, b; the file has fine, poor" in str(caught.value)


def test_a_message_repeats_little_of_a_file(run: Run, classifier: Path, tmp_path: Path) -> None:
    source = tmp_path / "long.csv"
    source.write_text(f"text,label\nGood bread.,{'9' * 5000}\n")
    with pytest.raises(BertsmithError, match="knows none of the labels") as caught:
        run("evaluate", classifier, source)
    assert len(str(caught.value).replace(str(tmp_path), "")) < 600
