"""Predictions beside the rows they belong to: every format has every column."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.data.predictions import merged, open_predictions
from bertsmith.data.vectors import open_vectors
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.tasks.read import known_records

ROWS: list[dict[str, Any]] = [
    {"id": 7, "text": 'a "b",\nc', "label": "x", "label_predicted": "y", "score": 0.5},
    {"id": 8, "text": "\ud800", "label": None, "label_predicted": None, "score": None},
]


def write(path: Path, *portions: list[dict[str, Any]], format: str | None = None) -> Ledger:
    ledger = Ledger()
    with open_predictions(path, format, ledger, records=known_records()) as writer:
        for portion in portions:
            writer.write(portion)
    return ledger


def test_jsonl(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", ROWS[:1], ROWS[1:])
    lines = (tmp_path / "a.jsonl").read_text("utf-8").split("\n")
    assert [json.loads(line) for line in lines[:-1]] == ROWS


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_delimited(name: str, tmp_path: Path) -> None:
    late = {**ROWS[0], "more": [1]}
    ledger = write(tmp_path / name, ROWS, [late])
    with (tmp_path / name).open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, delimiter="," if name == "a.csv" else "\t"))
    assert rows[0] == {**{key: str(value) for key, value in ROWS[0].items()}}
    assert rows[1] == {"id": "8", "text": "?", "label": "", "label_predicted": "", "score": ""}
    assert ledger.counts == {"cells of columns that came after the header, not written": 1}


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write(
        tmp_path / "a.parquet", [{**ROWS[0], "scores": {"x": 0.5}}], [{**ROWS[1], "scores": None}]
    )
    rows = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert rows[0] == {**ROWS[0], "scores": '{"x": 0.5}'}
    assert rows[1] == {**ROWS[1], "text": "?", "scores": None}
    with pytest.raises(BertsmithError, match="a column changes its type"):
        write(tmp_path / "b.parquet", ROWS[:1], [{**ROWS[0], "id": "seven"}])
    assert not (tmp_path / "b.parquet").exists()


@given(
    st.dictionaries(st.text("ab_", max_size=3), st.integers(), max_size=5),
    st.dictionaries(st.text("ab_", max_size=3), st.integers(), max_size=5),
)
def test_no_column_is_overwritten(row: dict[str, int], result: dict[str, int]) -> None:
    whole = merged(row, ["a"], result)
    assert len(whole) == len(row) + len(result)
    assert {name: whole[name] for name in row} == row
    assert sorted(value for name, value in whole.items() if name not in row) == sorted(
        result.values()
    )
    assert "a" in row or "a" not in whole


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    write(path, ROWS[:1])
    before = path.read_bytes()

    def broken() -> None:
        with open_predictions(path) as writer:
            writer.write(ROWS[:1])
            raise BertsmithError("no")

    with pytest.raises(BertsmithError, match="no"):
        broken()
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["a.csv"]


def test_two_writers(tmp_path: Path) -> None:
    """The last one that ends is there, whole."""
    path = tmp_path / "a.jsonl"
    with open_predictions(path) as first:
        first.write([{"n": 1}] * 3)
        with open_predictions(path) as second:
            second.write([{"n": 2}] * 3)
        first.write([{"n": 1}] * 3)
    assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == [1] * 6


@pytest.mark.parametrize(("name", "format"), [("a.txt", None), ("a.csv", "xml")])
def test_unknown_formats(name: str, format: str | None, tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match="format"):
        write(tmp_path / name, ROWS, format=format)
    with pytest.raises(BertsmithError, match="for models that tag entities"):
        write(tmp_path / name, ROWS, format="spacy")


def test_vectors(tmp_path: Path) -> None:
    vectors = np.arange(12, dtype=np.float32).reshape(4, 3)
    for name in ("a.npy", "a.jsonl"):
        with open_vectors(tmp_path / name) as writer:
            writer.write([{"text": "a"}] * 3, vectors[:3])
            writer.write([{"text": "b", "vector": 1}], vectors[3:])
    assert np.array_equal(np.load(tmp_path / "a.npy"), vectors)
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert rows[0] == {"text": "a", "vector": [0, 1, 2]}
    assert rows[3] == {"text": "b", "vector": 1, "vector_predicted": [9, 10, 11]}
    with open_vectors(tmp_path / "a.parquet") as writer:
        writer.write([{"text": "a"}] * 3, vectors[:3])
        writer.write([{"text": "b"}], vectors[3:])
    table = pq.read_table(tmp_path / "a.parquet")
    assert str(table.schema.field("vector").type) == "fixed_size_list<element: float>[3]"
    assert table["vector"].to_pylist() == vectors.tolist()
    with pytest.raises(BertsmithError, match=r"must end in \.npy"):
        open_vectors(tmp_path / "a.txt").__enter__()
