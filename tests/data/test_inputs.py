"""Portions: every format gives what it gives when read whole, and is never held whole."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from bertsmith import BertsmithError
from bertsmith.tasks.read import Portion, open_data, read_data


def portions(path: Path, task: str, size: int | None = None, **options: Any) -> list[Portion]:
    return list(open_data(path, task, **options).portions(size))


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
def test_portions_are_the_whole(name: str, content: str, size: int, tmp_path: Path) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        parquet(path)
    else:
        data = content.encode("utf-8")
        path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    parts = portions(path, "classification", size)
    found = [example for part in parts for example in part.examples]
    whole = read_data(path, "classification").examples
    assert [(one.text, one.where) for one in found] == [(one.text, one.where) for one in whole]
    assert len(found) == len(TEXTS)
    assert {one.label for one in found} == {None}  # whatever the file says
    assert max(len(part.examples) for part in parts) <= size
    shares = [part.share for part in parts]
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
    found = [example for part in portions(path, "tagging", 2) for example in part.examples]
    assert [one.words[0] for one in found] == [f"w{number}1" for number in range(7)]
    assert found[-1].at(2).number == 7 * 4 - 1
    if name != "b.txt":
        with pytest.raises(BertsmithError, match="words with tags, which is for tagging, not"):
            portions(path, "choice")


def test_a_key_that_comes_late(tmp_path: Path) -> None:
    """The columns that the first rows show stay, whatever later rows bring or lack."""
    path = tmp_path / "a.jsonl"
    rows = [{"sentence": "a"}, {"sentence": "b"}, {"sentence": "c", "text": "other"}, {"text": "d"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = open_data(path, "classification")
    examples = [one for part in data.portions(2) for one in part.examples]
    assert [one and one.text for one in examples] == ["a", "b", "c", None]
    assert data.ledger.counts == {"rows without a text": 1}
    assert data.unused == ("text",)


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
        for part in open_data(path, "classification").portions(64):
            assert len(part.examples) <= 64
            assert abs(part.share - (seen + 64) / count) < 0.02
            seen += len(part.examples)
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
    (part,) = portions(path, "answering")
    assert [(one.id, one.question, one.answers) for one in part.examples] == [
        ("1", "q0", None),
        ("2", "q1", None),
        ("3", "q2", None),
    ]
    path.write_text(json.dumps({"question": "a", "choices": ["b", "c"], "label": 1}) + "\n")
    (part,) = portions(path, "choice")
    assert (part.examples[0].options, part.examples[0].label) == (("b", "c"), None)
    path.write_text(json.dumps({"anchor": "a", "positive": "b"}) + "\n")
    (part,) = portions(path, "similarity")
    assert part.examples[0].texts == ("a", "b")
    named = {"text": "positive", "pair": "anchor"}
    (part,) = portions(path, "classification", columns=named)
    assert part.examples[0].texts == ("b", "a")


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("-DOCSTART- O\n\nParis B-LOC\n\n")
    data = open_data(path, "tagging")
    assert len(list(data.portions())) == 1
    assert data.ledger.counts == {"-DOCSTART- lines, left out": 1}


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("a.csv", b"", "a.csv is empty"),
        ("a.jsonl", b" \n\n", "a.jsonl is empty"),
        ("a.csv", b"text,label\n", "contains no examples"),
        ("a.csv", b"text,label\na,b\nc\n", "line 3: 1 column where the header has 2"),
        ("a.csv", b"text\na\n\xff\n", "line 3: the byte 0xff is not UTF-8"),
        ("a.txt", b"\xff\xfea", "cannot be read .not utf-16"),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', "line 2: not valid JSON"),
        ("a.csv", b"x,y\n1,2\n", "name it with columns={'text': 'NAME'}"),
        ("a.xyz", b"text\n", "unknown file type"),
        ("a.csv.gz", b"text\n", "cannot be read"),
        ("a.parquet", b"text\n", "not a parquet file"),
        ("a.json", b'{"data": [{"paragraphs": []}]}', "contains no examples"),
    ],
)
def test_mistakes(name: str, content: bytes, fault: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BertsmithError, match=fault):
        portions(path, "classification", 1)
    with pytest.raises(BertsmithError, match="is a folder"):
        portions(tmp_path, "classification")
