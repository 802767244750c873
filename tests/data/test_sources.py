"""Data as people have it: files of known data sets, Excel's exports, shards, Python objects."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from bertsmith import files
from bertsmith.data.folders import find_splits
from bertsmith.errors import BertsmithError
from bertsmith.tasks.read import open_data, read_data, read_texts
from bertsmith.tasks.splits import read_splits

GOOD = [("I loved it", "positive"), ("I hated it", "negative"), ("What a film", "positive")]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def table(*rows: tuple[object, ...], delimiter: str = ",") -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return stream.getvalue()


# ------------------------------------------------------------------ headers


@pytest.mark.parametrize(
    "rows",
    [
        GOOD,
        GOOD[:2],
        [("positive", "I loved it"), ("negative", "I hated it"), ("positive", "So good")],
        [("Is this a question?", "question"), ("It is not", "statement"), ("Why so", "question")],
        [("great phone battery", "5"), ("bad phone screen", "1"), ("fine", "5")],
        [("the topic", "topic"), ("another one", "title"), ("a third", "topic")],
    ],
)
def test_a_first_row_of_data_is_no_header(rows: list[tuple[str, str]], tmp_path: Path) -> None:
    dataset = read_data(write(tmp_path / "a.csv", table(*rows)))
    assert len(dataset) == len(rows)
    assert {one.label for one in dataset.examples} in ({a for a, _ in rows}, {b for _, b in rows})


@pytest.mark.parametrize(
    "names",
    [
        ("text", "label"),
        ("review", "sentiment"),
        ("inhalt", "art"),
        ("Customer feedback", "Outcome"),
        ("sentence", "positive"),
        ("Question", "Answer"),
    ],
)
def test_names_of_columns_are_a_header(names: tuple[str, str], tmp_path: Path) -> None:
    rows = [(f"a rather long text with number {n}", "yes" if n % 2 else "no") for n in range(8)]
    path = write(tmp_path / "a.csv", table(names, *rows))
    columns = {"text": names[0], "label": names[1]}
    dataset = read_data(path, "classification", columns=columns)
    assert len(dataset) == 8
    assert dataset.labels == ("no", "yes")
    if names[0] not in ("text", "review", "sentence", "Question"):
        with pytest.raises(BertsmithError, match="cannot tell which column holds the text: its"):
            read_data(path)


def test_a_person_decides(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", table(("text", "label"), *GOOD))
    without = read_data(path, header=False, columns={"text": "1", "label": "2"})
    assert [one.text for one in without.examples][:2] == ["text", "I loved it"]
    path = write(tmp_path / "b.csv", table(("I loved it", "positive"), *GOOD[1:], *GOOD[1:]))
    named = {"text": "I loved it", "label": "positive"}
    assert len(read_data(path, header=True, columns=named)) == 4


# ------------------------------------------------------------------ known data sets


def test_clinc150(tmp_path: Path) -> None:
    document = {
        "train": [[f"how much is {n}", "price"] for n in range(6)] + [["hi", "greet"]] * 6,
        "val": [["what does it cost", "price"], ["hello", "greet"]],
        "oos_train": [["tell me a riddle", "oos"]],
        "oos_val": [["sing", "oos"]],
        "test": [["cost?", "price"]],
    }
    path = write(tmp_path / "data_full.json", json.dumps(document))
    splits = read_splits(path)
    assert splits.dev is not None
    assert splits.test is not None
    assert (len(splits.train), len(splits.dev), len(splits.test)) == (13, 3, 1)
    assert splits.train.labels == ("greet", "oos", "price")
    assert splits.train.ledger.counts == {"examples of oos_train, read with train": 1}
    with pytest.raises(BertsmithError, match="several splits; choose train, dev, test with"):
        read_data(path)
    assert len(read_data(path, split="val")) == len(read_data(path, split="dev")) == 3


def test_trec(tmp_path: Path) -> None:
    lines = b"DESC:manner How did it begin ?\nNUM:date When was caf\xe9 coined ?\n"
    path = write(tmp_path / "train_5500.label", lines)
    with pytest.raises(BertsmithError, match=r"line 2: the byte 0xe9 .* encoding='cp1252'"):
        read_data(path)
    dataset = read_data(path, encoding="latin-1")
    assert [(one.label, one.text) for one in dataset.examples] == [
        ("DESC:manner", "How did it begin ?"),
        ("NUM:date", "When was café coined ?"),
    ]
    fast = write(tmp_path / "fast.txt", "__label__good a fine film\n__label__bad dull\n")
    assert read_data(fast).labels == ("bad", "good")


def test_wnut17(tmp_path: Path) -> None:
    path = write(tmp_path / "wnut17train.conll", "@a\tO\nAda\tB-person\n\nran\tO\n\t\n\nx\tO\n")
    with pytest.raises(BertsmithError, match="an empty word or tag"):
        read_data(write(tmp_path / "bad.conll", "Ada\tB-person\n\tO\n"))
    dataset = read_data(path)
    assert [one.words for one in dataset.examples] == [("@a", "Ada"), ("ran",), ("x",)]
    assert dataset.scheme == "bio"


def test_sick(tmp_path: Path) -> None:
    head = ("pair_ID", "sentence_A", "sentence_B", "entailment_label", "relatedness_score")
    more = ("entailment_AB", "SemEval_set")
    rows = [
        (1, "A dog runs", "An animal runs", "ENTAILMENT", 4.5, "A_entails_B", "TRAIN"),
        (2, "A dog runs", "No dog runs", "CONTRADICTION", 3.2, "A_contradicts_B", "TEST"),
    ]
    path = write(tmp_path / "SICK.txt", table(head + more, *rows, delimiter="\t"))
    dataset = read_data(path)
    assert dataset.task == "classification"
    assert dataset.columns == {
        "text": "sentence_A",
        "pair": "sentence_B",
        "label": "entailment_label",
    }
    assert dataset.alternatives == ("relatedness_score",)
    assert dataset.unused == ("pair_ID", "relatedness_score", "entailment_AB", "SemEval_set")
    scored = read_data(path, "regression")
    assert [one.score for one in scored.examples] == [4.5, 3.2]
    assert scored.alternatives == ("entailment_label",)


def test_copa(tmp_path: Path) -> None:
    rows = [
        {"premise": "It fell.", "choice1": "It broke.", "choice2": "It sang.", "label": 0},
        {"premise": "It broke.", "choice1": "It fell.", "choice2": "It sang.", "label": 0},
    ]
    for row, asked in zip(rows, ("effect", "cause"), strict=True):
        row |= {"question": asked, "idx": 3}
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    dataset = read_data(path)
    assert dataset.task == "choice"
    assert [one.prompt for one in dataset.examples] == [
        "It fell. What happened as a result?",
        "It broke. What was the cause of this?",
    ]
    assert dataset.columns["prompt"] == "premise + question"
    assert dataset.unused == ("idx",)
    (part,) = open_data(path, "choice").portions()
    assert part.examples[0].prompt == "It fell. What happened as a result?"


def test_wic(tmp_path: Path) -> None:
    row = {"word": "bank", "sentence1": "A bank lends.", "sentence2": "A river bank.", "idx": 0}
    row |= {"label": False, "start1": 2, "end1": 6, "start2": 8, "end2": 12}
    path = write(tmp_path / "a.jsonl", json.dumps(row))
    dataset = read_data(path)
    assert (dataset.task, dataset.examples[0].label) == ("classification", "false")
    assert dataset.examples[0].texts == ("bank: A bank lends.", "A river bank.")
    assert dataset.unused == ("idx", "start1", "end1", "start2", "end2")
    (part,) = open_data(path, "classification").portions()
    assert part.examples[0].texts == dataset.examples[0].texts


@pytest.mark.parametrize("values", [(True, False), ("true", "false"), ("yes", "no")])
def test_boolq(values: tuple[Any, Any], tmp_path: Path) -> None:
    rows = [
        {"question": "is it wet", "title": "Rain", "passage": "Rain is wet.", "answer": value}
        for value in values
    ]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    dataset = read_data(path)
    assert dataset.task == "classification"
    assert dataset.columns == {"text": "question", "pair": "passage", "label": "answer"}
    assert dataset.examples[0].texts == ("is it wet", "Rain is wet.")
    assert dataset.unused == ("title",)
    rows = [{**row, "answer": "wet"} for row in rows]
    path = write(tmp_path / "b.jsonl", "\n".join(map(json.dumps, rows)))
    assert read_data(path).task == "answering"
    named = open_data(path, "classification", columns={"text": "question"})
    assert next(named.portions()).examples[0].texts == ("is it wet", "Rain is wet.")


# ------------------------------------------------------------------ Excel


def test_exports_of_excel(tmp_path: Path) -> None:
    content = "sep=;\nText;Kategorie;;\nCafé;gut;;\n;schlecht;;\nNaN;gut;;\nx;NULL;;\n"
    for name, encoding in (("a.csv", "utf-16"), ("b.csv", "utf-8-sig"), ("c.csv", "cp1252")):
        path = write(tmp_path / name, content.replace("\n", "\r\n").encode(encoding))
        options = {"encoding": encoding} if encoding == "cp1252" else {}
        dataset = read_data(path, columns={"label": "Kategorie"}, **options)
        assert [(one.text, one.label) for one in dataset.examples] == [
            ("Café", "gut"),
            ("", "schlecht"),
            ("x", None),
        ]
        assert dataset.examples[0].where.number == 3
        assert dataset.ledger.counts == {
            "rows with empty cells after the last column": 4,
            'cells such as "NaN" or "NULL", read as no value': 2,
            "rows without a text, left out": 1,
            "examples without a label, not trained on and not scored": 1,
        }


def test_workbooks(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["review", "stars", None])
    for n in range(5):
        book.active.append([f"text {n}", n % 2 + 1, None])
    book.active.append(["NaN", 1])
    book.create_sheet("Notes").append(["x"])
    book.save(tmp_path / "a.xlsx")
    dataset = read_data(tmp_path / "a.xlsx")
    assert [(one.text, one.label) for one in dataset.examples][:2] == [
        ("text 0", "1"),
        ("text 1", "2"),
    ]
    assert dataset.ledger.counts["sheets that are not read: Notes"] == 1
    assert str(dataset.examples[0].where).endswith("a.xlsx, row 2")
    write(tmp_path / "b.xlsx", b"PK no workbook")
    with pytest.raises(BertsmithError, match="not an Excel workbook"):
        read_data(tmp_path / "b.xlsx")


@pytest.mark.parametrize("encoding", ["utf-9", "hex", "rot13", "x" * 300, "\0"])
def test_unknown_encodings(encoding: str, tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match="encoding"):
        read_data(write(tmp_path / "a.csv", "text\na\n"), encoding=encoding)


# ------------------------------------------------------------------ shards, folders, pipes


def test_shards(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    (tmp_path / "data").mkdir()
    for split, count in (("train", 3), ("validation", 1)):
        for n in range(count):
            rows = [{"text": f"{split} {n} {i}", "label": "ab"[i % 2]} for i in range(4)]
            name = f"{split}-{n:05}-of-{count:05}.parquet"
            parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "data" / name)
    found = {name: path.name for name, path in find_splits(tmp_path).items()}
    assert found == {
        "train": "train-*-of-00003.parquet",
        "dev": "validation-*-of-00001.parquet",
    }
    splits = read_splits(tmp_path)
    assert splits.dev is not None
    assert (len(splits.train), len(splits.dev)) == (12, 4)
    assert splits.train.examples[5].where.file.endswith("train-00001-of-00003.parquet")
    assert len(read_data(tmp_path / "data" / "train-*.parquet")) == 12
    assert len(list(open_data(tmp_path, "text", split="dev").texts())) == 4
    with pytest.raises(BertsmithError, match="is a folder; choose train, dev with split"):
        read_texts(tmp_path)
    with pytest.raises(BertsmithError, match="no such file or folder"):
        read_texts(tmp_path / "data" / "test-*.parquet")


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("a\nb\n", ["a", "b"]),
        ('{"text": "a"}\n{"text": "b"}\n', ["a", "b"]),
        ('[{"text": "a"}, {"text": "b"}]', ["a", "b"]),
        ("text,label\na,x\nb,y\n", ["a", "b"]),
        ("id\tsentence\n1\ta\n2\tb\n", ["a", "b"]),
    ],
)
def test_pipes(content: str, texts: list[str], tmp_path: Path) -> None:
    for name, data in (("p", content.encode()), ("q", gzip.compress(content.encode()))):
        pipe = tmp_path / name
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_bytes, args=(data,))
        writer.start()
        assert read_texts(pipe) == texts
        writer.join()


def test_a_pipe_without_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WRITER_SECONDS", 0.05)
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(BertsmithError, match="a pipe that nothing writes to"):
        read_data(tmp_path / "pipe.csv")


# ------------------------------------------------------------------ Python


def test_lists() -> None:
    rows = [{"text": text, "label": label} for text, label in GOOD]
    for source in (GOOD, rows, [list(pair) for pair in GOOD], iter(rows)):
        dataset = read_data(source)
        assert [(one.text, one.label) for one in dataset.examples] == GOOD
    assert str(dataset.examples[1].where) == "list, row 2"
    assert read_texts(["a", "", "b"]) == ["a", "", "b"]
    for wrong in ([], [1], [[]], b"text", {"text": "a"}, 5):
        with pytest.raises(BertsmithError):
            read_data(wrong)


def test_tables_of_pyarrow() -> None:
    pa = pytest.importorskip("pyarrow")
    rows = [{"text": text, "label": label} for text, label in GOOD]
    dataset = read_data(pa.Table.from_pylist(rows))
    assert [(one.text, one.label) for one in dataset.examples] == GOOD


def test_data_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(GOOD, columns=["review", "stars"])
    frame.loc[3] = [float("nan"), "positive"]
    dataset = read_data(frame)
    assert [(one.text, one.label) for one in dataset.examples] == GOOD
    assert dataset.ledger.counts == {"rows without a text, left out": 1}


# ------------------------------------------------------------------ hardening


def test_strange_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    parquet.write_table(twice, path)
    with pytest.raises(BertsmithError, match="two columns are called 'text'"):
        read_data(path)
    deep = {b"huggingface": b"[" * 100_000}
    late = pa.array([2**62], pa.timestamp("us"))
    table = pa.table({"text": ["a"], "label": ["x"], "at": late}).replace_schema_metadata(deep)
    parquet.write_table(table, path)
    assert read_data(path).examples[0].text == "a"


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        (
            "a.jsonl",
            '{"text": "a"}\n{"text": "b", "text": "c"}',
            "line 2: not valid JSON (the key 'text' occurs twice",
        ),
        (
            "a.jsonl",
            '{"text": "a", "label": ' + "9" * 5000 + "}",
            "line 1: not valid JSON (Exceeds the limit",
        ),
        ("a.conllu", "1-999999999\ta" + "\t_" * 8 + "\n1\tb" + "\t_" * 8, "column upos is empty"),
        ("a.conllu", "²-3\ta" + "\t_" * 8, "is not a word range"),
        ("a.csv", "text,score\na,1e999\n", "'score' is '1e999', not a finite number"),
        ("a.csv", "text,score\na,²\n", "'score' is '²', not a finite number"),
        ("a.csv", ",".join("abcab"), "name it with columns="),
    ],
)
def test_numbers_and_keys(name: str, content: str, fault: str, tmp_path: Path) -> None:
    task = "regression" if "score" in content else None
    with pytest.raises(BertsmithError) as caught:
        read_data(write(tmp_path / name, content), task)
    assert fault in str(caught.value)


def test_starts_of_answers(tmp_path: Path) -> None:
    row = {"question": "q", "context": "a b", "answers": {"text": ["b"], "answer_start": [None]}}
    assert read_data([row]).examples[0].answers[0].start == 2
    for wrong in ("x", [1], float("inf"), "9" * 5000):
        row["answers"] = {"text": ["b"], "answer_start": [wrong]}
        with pytest.raises(BertsmithError, match="an answer needs a text and an answer_start"):
            read_data([row])


def test_huge_cells_are_quick_and_bounded(tmp_path: Path) -> None:
    long = "x" * (17 << 20)
    for name, content in (
        ("a.csv", f"text,label\n{long},x\n"),
        ("b.csv", 'text,label\n"' + "line\n" * (4 << 20) + '",x\n'),
        ("c.jsonl", f'{{"text": "{long}"}}'),
        ("d.txt", long),
    ):
        with pytest.raises(BertsmithError, match=r"longer than 16 MiB|larger than field limit"):
            read_data(write(tmp_path / name, content))


def test_ids_with_half_a_character(tmp_path: Path) -> None:
    row = {"id": "a\ud800", "question": "q", "context": "a b", "answers": ["b"]}
    path = write(tmp_path / "a.jsonl", json.dumps(row))
    assert read_data(path).examples[0].id == "a?"
