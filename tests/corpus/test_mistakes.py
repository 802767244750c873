"""What a person can get wrong, and bad files: one line each that names what it is about."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from bertsmith.corpus import Corpus, prepare
from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import Tokenizer
from corpus.texts import as_text, documents, files, pack, write


def refused(message: str, *given: Any, **options: Any) -> None:
    with pytest.raises(BertsmithError, match=message) as caught:
        prepare(*given, **{"workers": 0, **options})
    assert "\n" not in str(caught.value)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write(tmp_path / "good.txt", documents(5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"duplicates": "fuzzy"}, "duplicates can be exact or near"),
        ({"held_out": 1}, "held_out must be"),
        ({"held_out": -0.1}, "held_out must be"),
        ({"similarity": 0.1}, "similarity"),
        ({"min_length": -1}, "min_length"),
        ({"min_length": 9, "max_length": 3}, "no document has 9 to 3 characters"),
        ({"seed": -1}, "seed"),
        ({"shard_tokens": 0}, "at least one"),
        ({"workers": -2}, "from 0 to 1,024, not -2"),
        ({"engine": "spark"}, "unknown engine 'spark'; there are local, ray"),
        ({"language": "klingon"}, "'klingon' is unknown; known:"),
    ],
)
def test_settings(options: Any, message: str, good: Path, words: Tokenizer, tmp_path: Path) -> None:
    refused(message, [good], words, tmp_path / "out", **options)


def test_files_that_are_not_there(words: Tokenizer, tmp_path: Path) -> None:
    out = tmp_path / "out"
    refused(r"no\.txt: cannot be read \(No such file", [tmp_path / "no.txt"], words, out)
    (tmp_path / "empty").mkdir()
    refused(r"empty: contains no file that ends in \.txt", [tmp_path / "empty"], words, out)
    refused("no files", [], words, out)
    assert not out.exists()


@pytest.mark.parametrize("name", ["a.txt", "a.txt.xz", "a.jsonl"])
def test_not_utf8(name: str, words: Tokenizer, tmp_path: Path) -> None:
    path = write(tmp_path / name, documents(100))
    suffix = path.suffix if path.suffix == ".xz" else ""
    lines = (b'{"text": "a"}\n' if name == "a.jsonl" else b"a\n\n") * 60
    path.write_bytes(pack(suffix, lines + b"caf\xe9\n"))
    place = 61 if name == "a.jsonl" else 121
    message = rf"{name}, line {place}: the byte 0xe9 is not UTF-8 text"
    refused(message, [path], words, tmp_path / "out", piece_bytes=50)
    refused(message, [path], words, tmp_path / "two", piece_bytes=50, workers=2)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("break_it", ["cut", "garbage", "flipped"])
def test_broken_archives(suffix: str, break_it: str, words: Tokenizer, tmp_path: Path) -> None:
    path = write(tmp_path / f"a.txt{suffix}", documents(500))
    data = bytearray(path.read_bytes())
    if break_it == "cut":
        data = data[: len(data) * 2 // 3]
    elif break_it == "garbage":
        data = bytearray(b"this is not compressed at all")
    else:
        data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    refused(rf"a\.txt{suffix}: cannot be read \(", [path], words, tmp_path / "out")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"body": "a"}', 'not a JSON object with a "text"'),
        ("{", 'not a JSON object with a "text"'),
        ("7", 'not a JSON object with a "text"'),
        ('["text"]', 'not a JSON object with a "text"'),
        ('{"text": 3}', '"text" is not a string'),
        ("[" * 10_000, 'not a JSON object with a "text"'),
    ],
)
def test_records(line: str, message: str, words: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n\n' + line + "\n")
    refused(rf"a\.jsonl, line 3: {message}", [tmp_path / "a.jsonl"], words, tmp_path / "out")


def test_tables(words: Tokenizer, tmp_path: Path) -> None:
    path, out = tmp_path / "a.parquet", tmp_path / "out"
    parquet.write_table(pyarrow.table({"body": ["a"], "n": [1]}), path)
    refused("no column 'text'; there are body, n", [path], words, out)
    # Nothing was done yet: the folder takes the corrected call.
    assert prepare([path], words, out, text_field="body", workers=0).splits["train"].documents == 1
    refused(
        "the column 'n' holds int64, not strings", [path], words, tmp_path / "b", text_field="n"
    )
    path.write_bytes(b"PAR1 but not really")
    refused(r"a\.parquet: cannot be read \(", [path], words, tmp_path / "c")
    (tmp_path / "a.parquet.gz").write_bytes(b"")
    refused("decompress it first", [tmp_path / "a.parquet.gz"], words, tmp_path / "d")


def test_nothing_left(good: Path, words: Tokenizer, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        refused("no documents left.*shorter than 10,000", [good], words, out, min_length=10_000)
    prepare([good], words, out, workers=0)  # and the folder can be used for something better
    assert Corpus.open(out).documents
    (tmp_path / "empty.txt").write_text("\n \n")
    refused("no text in the files", [tmp_path / "empty.txt"], words, tmp_path / "b")


def test_folders_that_cannot_be_written(good: Path, words: Tokenizer, tmp_path: Path) -> None:
    refused(r"good\.txt: cannot be written", [good], words, good)
    refused("cannot be written", [good], words, good / "below")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("kept")
    refused("full: not an empty folder", [good], words, tmp_path / "full")
    assert (tmp_path / "full" / "mine").read_text() == "kept"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(good: Path, words: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    refused(r"cannot be written \(Permission denied\)", [good], words, tmp_path / "closed" / "out")


@pytest.mark.parametrize("limit", [30_000, 65_000])
def test_a_full_disk(limit: int, words: Tokenizer, tmp_path: Path) -> None:
    """The system itself stops the writing, of a piece or of a shard; then it goes on."""
    source = write(tmp_path / "a.txt", documents(500))
    options = {"workers": 0, "held_out": 0.1, "piece_bytes": 50_000}
    prepare([source], words, tmp_path / "whole", **options)
    sizes = [len(data) for name, data in files(tmp_path / "whole").items() if "tokens-" in name]
    assert max(sizes) > 65_000
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
    try:
        refused(
            r"out.*: cannot be written \(File too large\)",
            [source],
            words,
            tmp_path / "out",
            **options,
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    prepare([source], words, tmp_path / "out", **options)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        ("ftfy", {"repair": True}, "pip install ftfy"),
        ("rensa", {"duplicates": "near"}, "pip install rensa"),
        ("py3langid.langid", {"language": "en"}, "pip install py3langid"),
        ("ray", {"engine": "ray"}, r"pip install 'bertsmith\[ray\]'"),
    ],
)
def test_extras_that_are_missing(
    module: str,
    options: Any,
    message: str,
    good: Path,
    words: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    refused(message, [good], words, tmp_path / "out", **options)


@pytest.mark.parametrize(("module", "name"), [("zstandard", "a.txt.zst"), ("pyarrow", "a.parquet")])
def test_readers_that_are_missing(
    module: str, name: str, words: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / name, documents(3))
    monkeypatch.setitem(sys.modules, module, None)
    refused(f"{name}: .* pip install {module}", [path], words, tmp_path / "out")


def test_a_damaged_plan(good: Path, words: Tokenizer, tmp_path: Path) -> None:
    prepare([good], words, tmp_path / "out", workers=0)
    (tmp_path / "out" / "plan.json").write_text(json.dumps({})[:1])
    refused(r"plan\.json is damaged", [good], words, tmp_path / "out")


def test_text_is_given_as_files(words: Tokenizer, tmp_path: Path) -> None:
    """A single path is as good as a list of one."""
    path = tmp_path / "a.txt"
    path.write_text(as_text(documents(3)))
    assert prepare(str(path), words, tmp_path / "out", held_out=0, workers=0).splits["train"]


def test_two_parquet_columns_of_one_name(words: Tokenizer, tmp_path: Path) -> None:
    columns = [pyarrow.array(["a", "b"]), pyarrow.array(["c", "d"])]
    table = pyarrow.Table.from_arrays(columns, names=["text", "text"])
    parquet.write_table(table, tmp_path / "a.parquet")
    refused("two columns are called 'text'", [tmp_path / "a.parquet"], words, tmp_path / "out")
