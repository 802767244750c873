"""Tables of every format give the same examples, with their lines."""

import csv
import gzip
import io
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from bertsmith.data.tables import Where
from bertsmith.tasks.classification.reading import Labelled
from bertsmith.tasks.read import read_data

ROWS = [
    {"text": 'He said "no", then left.', "label": "neg"},
    {"text": "two\nlines; and a\ttab", "label": "pos"},
    {"text": "Kraków 😀 \u2028 שלום", "label": "pos"},
    {"text": "", "label": "neg"},
]


def as_csv(delimiter: str = ",", **options: Any) -> str:
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, ["text", "label"], delimiter=delimiter, **options)
    writer.writeheader()
    writer.writerows(ROWS)
    return stream.getvalue()


def as_lines() -> str:
    return "\n\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS) + "\n"


FILES = {
    "a.csv": as_csv(),
    "semicolons.csv": as_csv(";"),
    "tabs.csv": as_csv("\t"),
    "unix.csv": as_csv(lineterminator="\n", quoting=csv.QUOTE_ALL),
    "quoted.tsv": as_csv("\t", lineterminator="\n"),
    "a.jsonl": as_lines(),
    "lines.json": as_lines(),
    "list.json": json.dumps(ROWS),
    "data.json": json.dumps({"version": 1, "data": ROWS}),
}


def plain(examples: list[Labelled]) -> list[dict[str, Any]]:
    return [{"text": one.text, "label": one.label} for one in examples]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_same_from_every_format(name: str, mark: str, tmp_path: Path) -> None:
    content = (mark + FILES[name]).encode()
    (tmp_path / name).write_bytes(content)
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    (tmp_path / f"{name}.xz").write_bytes(lzma.compress(content))
    for ending in ("", ".gz", ".xz"):
        found = read_data(tmp_path / (name + ending))
        assert plain(found.examples) == ROWS
        assert (found.task, found.labels) == ("classification", ("neg", "pos"))
        assert found.columns == {"text": "text", "label": "label"}
        assert "texts and labels" in found.guessed


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    found = read_data(tmp_path / "a.parquet")
    assert plain(found.examples) == ROWS
    assert str(found.examples[1].where) == f"{tmp_path}/a.parquet, row 2"
    packed = lzma.compress((tmp_path / "a.parquet").read_bytes())
    (tmp_path / "a.parquet.xz").write_bytes(packed)
    assert plain(read_data(tmp_path / "a.parquet.xz").examples) == ROWS


def test_class_names_in_parquet(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    classes = datasets.ClassLabel(names=["O", "B-PER", "I-PER"])
    features = datasets.Features(
        {
            "tokens": datasets.Sequence(datasets.Value("string")),
            "ner_tags": datasets.Sequence(classes),
        }
    )
    rows = {"tokens": [["Ada", "Lovelace", "lived"]], "ner_tags": [[1, 2, 0]]}
    datasets.Dataset.from_dict(rows, features).to_parquet(str(tmp_path / "a.parquet"))
    found = read_data(tmp_path / "a.parquet")
    assert found.examples[0].tags == ("B-PER", "I-PER", "O")
    assert (found.task, found.scheme) == ("tagging", "bio")


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,label\n"one\ntwo\nthree",x\n\nfour,y\n')
    lines = [one.where for one in read_data(tmp_path / "a.csv").examples]
    assert lines == [Where(f"{tmp_path}/a.csv", 2), Where(f"{tmp_path}/a.csv", 6)]


def test_quotes_of_unquoted_files_stay(tmp_path: Path) -> None:
    # As GLUE writes: a cell may begin with a quote that nothing closes.
    content = 'sentence\tlabel\n" open\t1\nsaid "yes" twice\t0\n"all in quotes"\t1\n'
    (tmp_path / "a.tsv").write_text(content)
    texts = [one.text for one in read_data(tmp_path / "a.tsv").examples]
    assert texts == ['" open', 'said "yes" twice', '"all in quotes"']


def test_quotes_of_quoted_files_go(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text('text\tlabel\n"He said ""no"""\t1\nplain\t0\n')
    assert [one.text for one in read_data(tmp_path / "a.tsv").examples] == ['He said "no"', "plain"]


def test_a_cell_of_a_million_characters(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\n" + "long " * 200_000 + ",x\nb,y\n")
    assert len(read_data(tmp_path / "a.csv").examples[0].text) == 1_000_000
    assert csv.field_size_limit() == 131072


@pytest.mark.parametrize("values", [(1, 0), (1.0, 0.0), ("1", "0"), (" 1", "0 ")])
def test_labels_are_names(values: tuple[Any, Any], tmp_path: Path) -> None:
    rows = [{"text": "a", "label": values[0]}, {"text": "b", "label": values[1]}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = read_data(tmp_path / "a.jsonl", "classification")
    assert [one.label for one in found.examples] == ["1", "0"]
    assert found.labels == ("0", "1")
    named = read_data(tmp_path / "a.jsonl", "classification", label_names=["bad", "good"])
    assert [one.label for one in named.examples] == ["good", "bad"]
    (tmp_path / "b.jsonl").write_text(
        '{"text": "a", "label": "fine"}\n{"text": "b", "label": "poor"}'
    )
    words = read_data(tmp_path / "b.jsonl", "classification", label_names=["bad", "good"])
    assert "names of labels, not used" in words.ledger.lines()[0]


def test_the_order_of_labels_is_not_the_files(tmp_path: Path) -> None:
    for name, order in (("a", ["10", "9", "2"]), ("b", ["2", "10", "9"])):
        rows = [f"{label} x,{label}" for label in order]
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "\n".join(rows))
    labels = [read_data(tmp_path / f"{name}.csv").labels for name in "ab"]
    assert labels == [("2", "9", "10")] * 2
