"""Files to predict on: every format in stretches, as it is read whole, and never held whole."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from bertsmith import BertsmithError
from bertsmith.data import read_data
from bertsmith.data.inputs import read_inputs
from bertsmith.ledger import Ledger

TEXTS = [f"text {n}" + ('\nwith, a "quoted" line' if n % 3 == 0 else "") for n in range(10)]
ROWS = [{"text": text, "label": "ab"[n % 2]} for n, text in enumerate(TEXTS)]


def csv(delimiter: str = ",", names: str = "text,label\n") -> str:
    cells = ['"' + row["text"].replace('"', '""') + f'"{delimiter}{row["label"]}' for row in ROWS]
    return names.replace(",", delimiter) + "\n".join(cells) + "\n"


def parquet(path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    write_table(pyarrow.Table.from_pylist(ROWS), path)


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", csv()),
        ("b.csv", csv().replace("\n", "\r\n")),
        ("c.csv", csv(";")),
        ("d.csv", csv(names="")),
        ("e.tsv", csv("\t")),
        ("f.csv.gz", csv()),
        ("g.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS)),
        ("h.jsonl", "\ufeff\n" + "\n\n".join(json.dumps(row) for row in ROWS)),
        ("i.json", json.dumps(ROWS)),
        ("j.parquet", ""),
    ],
)
def test_stretches_are_the_whole(name: str, content: str, size: int, tmp_path: Path) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        parquet(path)
    else:
        data = content.encode("utf-8")
        path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    stretches = list(read_inputs(path, "classification", size=size))
    found = [example for stretch in stretches for example in stretch.examples]
    whole = read_data(path, "classification").examples
    assert [(one.text, one.where) for one in found] == [(one.text, one.where) for one in whole]
    assert len(found) == len(TEXTS)
    assert {one.label for one in found} == {None}  # whatever the file says
    assert max(len(stretch.examples) for stretch in stretches) <= size
    shares = [stretch.share for stretch in stretches]
    assert shares == sorted(shares)
    assert 0 < shares[0] <= shares[-1] == 1.0


@pytest.mark.parametrize(
    ("name", "line"),
    [("a.conll", "{word} O"), ("b.txt", "{word} NN O O"), ("c.conllu", "{n}\t{word}" + "\t_" * 8)],
)
def test_tagged_sentences(name: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / name
    sentences = [
        "\n".join(line.format(n=n, word=f"w{number}{n}") for n in range(1, 4))
        for number in range(7)
    ]
    path.write_text("\n\n".join(sentences) + "\n")
    found = [
        example for stretch in read_inputs(path, "tagging", size=2) for example in stretch.examples
    ]
    assert [one.words[0] for one in found] == [f"w{number}1" for number in range(7)]
    assert found[-1].at(2).number == 7 * 4 - 1
    with pytest.raises(BertsmithError, match="words with tags; the model is for choice"):
        list(read_inputs(tmp_path / name.replace("b.txt", "a.conll"), "choice"))


def test_a_key_that_comes_late(tmp_path: Path) -> None:
    """The columns that the first rows show stay, whatever later rows bring or lack."""
    path = tmp_path / "a.jsonl"
    rows = [{"sentence": "a"}, {"sentence": "b"}, {"sentence": "c", "text": "other"}, {"text": "d"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    stretches = list(read_inputs(path, "classification", size=2))
    assert [one.text for s in stretches for one in s.examples] == ["a", "b", "c", ""]


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    count = 6000
    with path.open("w") as file:
        for number in range(count):
            file.write(json.dumps({"text": f"text number {number} " + "river " * 20}) + "\n")
    size = path.stat().st_size
    tracemalloc.start()
    try:
        seen = 0
        for stretch in read_inputs(path, "classification", size=64):
            assert len(stretch.examples) <= 64
            assert abs(stretch.share - (seen + 64) / count) < 0.02
            seen += len(stretch.examples)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen == count
    assert peak < size / 4, f"{peak:,} bytes for a file of {size:,}"


def question(number: int, **more: Any) -> dict[str, Any]:
    return {"question": f"q{number}", "context": "the river", **more}


def test_questions_choices_and_pairs(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text("".join(json.dumps(question(n, answers=7)) + "\n" for n in range(3)))
    (stretch,) = read_inputs(path, "answering")
    assert [(one.id, one.question, one.answers) for one in stretch.examples] == [
        ("1", "q0", None),
        ("2", "q1", None),
        ("3", "q2", None),
    ]
    path.write_text(json.dumps({"question": "a", "choices": ["b", "c"], "label": 1}) + "\n")
    (stretch,) = read_inputs(path, "choice")
    assert (stretch.examples[0].options, stretch.examples[0].label) == (("b", "c"), None)
    path.write_text(json.dumps({"anchor": "a", "positive": "b"}) + "\n")
    (stretch,) = read_inputs(path, "similarity")
    assert stretch.examples[0].texts == ("a", "b")
    named = {"text": "positive", "pair": "anchor"}
    (stretch,) = read_inputs(path, "classification", named)
    assert stretch.examples[0].texts == ("b", "a")


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    path, ledger = tmp_path / "a.conll", Ledger()
    path.write_text("-DOCSTART- O\n\nParis B-LOC\n\n")
    assert len(list(read_inputs(path, "tagging", ledger=ledger))) == 1
    assert ledger.counts == {"-DOCSTART- lines, left out": 1}


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("a.csv", b"", "a.csv is empty"),
        ("a.jsonl", b" \n\n", "a.jsonl is empty"),
        ("a.csv", b"text,label\n", "there are no examples in it"),
        ("a.csv", b"text,label\na,b\nc\n", "line 3: 1 columns where the header has 2"),
        ("a.csv", b"text\na\n\xff\n", "line 3: the byte 0xff is not UTF-8"),
        ("a.txt", b"\xff\xfea\0", "is UTF-16 text"),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', "line 2: not JSON"),
        ("a.csv", b"x,y\n1,2\n", "name it with --text-column"),
        ("a.gz", b"text\n", "what kind of file is this"),
        ("a.csv.gz", b"text\n", "cannot be read"),
        ("a.parquet", b"text\n", "not a parquet file"),
        ("a.json", b'{"data": [{"paragraphs": []}]}', "is in SQuAD's layout"),
    ],
)
def test_mistakes(name: str, content: bytes, fault: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BertsmithError, match=fault):
        list(read_inputs(path, "classification", size=1))
    with pytest.raises(BertsmithError, match="is a folder"):
        list(read_inputs(tmp_path, "classification"))
