"""Readers, whatever they are given: what was written comes back, and anything else is one error."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from bertsmith.data.delimited import ABSENT
from bertsmith.errors import BertsmithError
from bertsmith.tasks.read import open_data, read_data

same_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25
)
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.text(characters, max_size=20).filter(lambda text: text not in ABSENT)
labels = st.sampled_from(["x", "y", "z w"])
rows = st.lists(st.tuples(texts, labels), min_size=1, max_size=8)


def read_all(path: Path, task: str | None = None, **options: Any) -> list[tuple[str, Any]]:
    return [(one.text, one.label) for one in read_data(path, task, **options).examples]


@same_folder
@given(rows, st.sampled_from(",;|\t"), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_csv(
    tmp_path: Path, cells: list[tuple[str, str]], delimiter: str, end: str, quote: bool
) -> None:
    if end == "\n" and not quote:  # Python's writer leaves a carriage return unquoted then
        cells = [(text.replace("\r", ""), label) for text, label in cells]
    assume(not any(text in ABSENT for text, _ in cells))
    stream = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if quote else csv.QUOTE_MINIMAL
    writer = csv.writer(stream, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerows([("text", "label"), *cells])
    path = tmp_path / "a.csv"
    path.write_bytes(stream.getvalue().encode())
    assert read_all(path, "classification") == cells
    for encoding in ("utf-16", "utf-8-sig"):
        path.write_bytes(stream.getvalue().encode(encoding))
        assert read_all(path, "classification") == cells
    if not any(text.strip() for text, _ in cells):
        return  # there is nothing to predict
    portions = list(open_data(path, "classification").portions(2))
    texts = [one.text if one else None for part in portions for one in part.examples]
    assert texts == [text if text.strip() else None for text, _ in cells]
    assert [row["label"] for part in portions for row in part.rows] == [name for _, name in cells]


plain_cells = st.text(characters, max_size=20).filter(
    lambda text: text not in ABSENT and not set(text) & set('"\t\r\n')
)


@same_folder
@given(st.lists(st.tuples(plain_cells, labels), min_size=1, max_size=8))
def test_tsv(tmp_path: Path, cells: list[tuple[str, str]]) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{a}\t{b}\n" for a, b in cells), "utf-8", newline="")
    assert read_all(path, "classification") == cells


@same_folder
@given(rows, st.booleans())
def test_json(tmp_path: Path, cells: list[tuple[str, str]], ascii_only: bool) -> None:
    objects = [{"text": text, "label": label} for text, label in cells]
    lines = [json.dumps(one, ensure_ascii=ascii_only) for one in objects]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), "utf-8", newline="")
    (tmp_path / "a.json").write_text("[" + ",\n".join(lines) + "]", "utf-8", newline="")
    for name in ("a.jsonl", "a.json"):
        assert read_all(tmp_path / name, "classification") == cells
    assert [(one.text, one.label) for one in read_data(objects).examples] == cells


STARTS = [b"", b"text,label\n", b"text\tlabel\n", b'{"text": ', b"[[", b"sep=;\n", b"PAR1"]
STARTS += [b"\xff\xfe", b"\xef\xbb\xbf", b"\x1f\x8b", b"PK\3\4", b"1\ta\t_\t_\t_\t_\t0\t_\t_\t_\n"]
STARTS += [
    b'{"question": "q", "context": "c", "answers": ',
    b'{"data": [{"paragraphs": [',
    b"a O\n\n",
]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = ["text", "label", "pair", "score", "tokens", "ner_tags", "question", "context", "answers"]
NAMES += [
    "choice1",
    "choice2",
    "premise",
    "spans",
    "entities",
    "choices",
    "anchor",
    "positive",
    "id",
]


@pytest.mark.parametrize(
    "ending",
    ["csv", "tsv", "txt", "jsonl", "json", "conll", "conllu", "parquet", "csv.gz", "x.zst"],
)
@same_folder
@given(st.sampled_from(STARTS), st.binary(max_size=60), st.sampled_from(["text", "tagging", None]))
@example(b"", b'\r\r\n"', None)
@example(b"a,b\n", b"\x1c\x85,\n", None)
def test_any_bytes(
    tmp_path: Path, ending: str, start: bytes, rest: bytes, task: str | None
) -> None:
    path = tmp_path / f"a.{ending}"
    path.write_bytes(start + rest)
    for read in (
        lambda: read_data(path, None if task == "text" else task),
        lambda: list(open_data(path, task or "classification").portions(3)),
    ):
        try:
            read()
        except BertsmithError as error:
            assert "\n" not in str(error)  # noqa: PT017
            assert str(path) in str(error)  # noqa: PT017


TASKS = [
    "classification",
    "multilabel",
    "regression",
    "tagging",
    "answering",
    "choice",
    "similarity",
]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.dictionaries(st.sampled_from(NAMES), values, min_size=1), min_size=1, max_size=3),
    st.sampled_from([None, *TASKS]),
)
def test_any_values(listed: list[dict[str, Any]], task: str | None) -> None:
    for read in (lambda: read_data(listed, task), lambda: list(open_data(listed, task).portions())):
        try:
            read()
        except BertsmithError as error:
            assert "\n" not in str(error)  # noqa: PT017
