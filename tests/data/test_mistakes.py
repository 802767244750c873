"""Bad files: one clear line each, with the file, and the line where there is one."""

import gzip
import lzma
from pathlib import Path

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.tasks.read import read_data


@pytest.mark.parametrize(
    ("name", "content", "task", "fault"),
    [
        ("a.csv", b"", None, "a.csv is empty"),
        ("a.csv", b" \n\n", None, "a.csv is empty"),
        ("a.csv", b"text,label\n", None, "contains no rows"),
        ("a.csv", b"text,label\na,x\nb\n", None, "line 3: 1 column where the header has 2"),
        ("a.csv", b"text,label\na,x\nb,y,z\n", None, "line 3: 3 columns where the header has 2"),
        ("a.csv", b"text,label\na, b,x\nc,y\n", None, "has 2; is a separator in a cell without"),
        ("a.tsv", b"text\tlabel\na\tx\nb\n", None, "line 3: 1 column where the header has 2"),
        ("a.csv", b'text,label\n"a,x\nb,y\n', None, "line 2: unbalanced quotes in this row"),
        ("a.csv", b"text,text\na,b\n", None, "two columns are called 'text'"),
        ("a.csv", b"text,score\na,1e308\nb,-1e308\n", "regression", "line 2: 'score' is '1e308', "),
        ("a.csv", b"text,label\na,x\ncaf\xe9,y\n", None, "line 3: the byte 0xe9 is not UTF-8"),
        ("a.csv", "text,label\na,x\n".encode("utf-16")[:-1], None, "cannot be read (not utf-16"),
        ("a.csv", b"wrds,lbl\na,x\nb,y\n", None, "name it with columns={'text': 'NAME'}"),
        (
            "a.csv",
            b"id,label\na,x\n",
            None,
            "its columns are id, label; name it with columns={'text': 'NAME'}",
        ),
        ("a.csv", b"text,label\na,x\n", "poetry", "unknown task 'poetry'; known: classification"),
        ("a.csv", b"text,label\na,x\n", "answering", "cannot tell which column holds the question"),
        ("a.csv", b"text,label\na,x\n", "tagging", "cannot tell which column holds the tokens"),
        (
            "a.csv",
            b"text,label\na,x\n",
            "regression",
            "'label' is 'x', not a finite number",
        ),
        ("a.csv", b"text,score\na,inf\n", "regression", "is 'inf', not a finite number"),
        ("a.jsonl", b'{"text": "a"}\n{"text"\n', None, "a.jsonl, line 2: not valid JSON"),
        ("a.jsonl", b'{"text": "a"}\n[1]\n', None, "line 2: not a JSON object"),
        ("a.jsonl", b"[" * 100_000, None, "line 1: not valid JSON"),
        ("a.jsonl", b'{"text": ["a"], "label": 1}', "classification", "'text' is a list, not text"),
        ("a.jsonl", b'{"text": "a\\ud800", "label": 1}', None, "half of a surrogate pair"),
        ("a.json", b'{"data": [}', None, "a.json: not valid JSON"),
        (
            "a.jsonl",
            b'{"tokens": ["a", "b"], "ner_tags": ["O"]}',
            None,
            "line 1: 2 words in 'tokens', 1 tag in 'ner_tags'",
        ),
        ("a.jsonl", b'{"tokens": ["a"], "ner_tags": [""]}', None, "line 1: word 1 has no tag"),
        ("a.parquet", b"not parquet", None, "not a parquet file"),
        ("a.csv.gz", b"not gzip", None, "cannot be read (Not a gzipped file"),
        ("a.csv.xz", lzma.compress(b"text,label\n" * 99)[:-9], None, "cannot be read (Compressed"),
        ("a.csv.gz", gzip.compress(b"text,label\n", mtime=0)[:-4], None, "cannot be read (Compr"),
        ("a.docx", b"PK", None, "unknown file type; known: csv, tsv"),
    ],
)
def test_one_line(name: str, content: bytes, task: str | None, fault: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BertsmithError) as caught:
        read_data(tmp_path / name, task)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(tmp_path))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match="no such file or folder"):
        read_data(tmp_path / "a.csv")
    with pytest.raises(BertsmithError, match="is a folder; give a file"):
        read_data(tmp_path)


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\na,x\n")
    fault = r"no column 'lable' for the label; it has text, label; did you mean 'label'\?"
    with pytest.raises(BertsmithError, match=fault):
        read_data(tmp_path / "a.csv", columns={"label": "lable"})


def test_numbers_beyond_the_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\na,0\nb,2\n")
    with pytest.raises(BertsmithError, match="line 3: label 2, but there are 2 names"):
        read_data(tmp_path / "a.csv", label_names=["no", "yes"])


def test_official_files_may_be_ragged(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("text\tlabel\na\tx\nb\nc\ty\n")
    found = read_data(tmp_path / "a.tsv", skip_ragged=True)
    assert [one.text for one in found.examples] == ["a", "c"]
    assert found.ledger.lines() == ["rows with a wrong number of columns, left out: 1"]
