"""Where texts come from: the command line, files, standard input."""

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from bertsmith.cli import shared
from bertsmith.cli.shared import clipped, read_texts
from bertsmith.errors import BertsmithError
from cli.conftest import Run

LINES = ["The river.", "", " spaces kept ", "Kraków 😀 שלום", "a\u2028b\rc\x0cd", "last"]


def texts_of(run: Run, model: Path, *words: str | Path, text: Any = None) -> list[str]:
    shown = run("tokenizer", "show", model, "--json", *words, text=text)
    assert shown.status == 0
    return [row["text"] for row in shown.rows]


def test_words_of_the_command_line(run: Run, model: Path) -> None:
    assert texts_of(run, model, "--", "one two", "", "-x") == ["one two", "", "-x"]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("last", [True, False])
def test_lines_of_a_file(
    run: Run, model: Path, tmp_path: Path, ending: str, mark: str, last: bool
) -> None:
    content = (mark + ending.join(LINES) + ending * last).encode()
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / "a").write_bytes(content)
    with gzip.open(tmp_path / "a.txt.gz", "wb") as packed:
        packed.write(content)
    with lzma.open(tmp_path / "a.xz", "wb") as packed:
        packed.write(content)
    for name in ("a.txt", "a", "a.txt.gz", "a.xz"):
        assert read_texts(None, tmp_path / name) == LINES
    assert texts_of(run, model, text=content) == LINES


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.xz"])
def test_records_of_a_file(name: str, tmp_path: Path) -> None:
    rows = [json.dumps({"text": line, "more": 1}) for line in LINES]
    content = "\n".join([*rows[:2], "", "  ", *rows[2:]]).encode()
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(Path(name).suffix, open)
    with opener(tmp_path / name, "wb") as stream:
        stream.write(content)
    assert read_texts(None, tmp_path / name) == LINES


def test_a_line_of_two_megabytes_is_one_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("river " * 350_000 + "\nend")
    long, end = read_texts(None, tmp_path / "a.txt")
    assert (len(long), end) == (2_100_000, "end")


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("a.txt", b"", "a.txt is empty"),
        ("a.jsonl", b"\n\n", "a.jsonl is empty"),
        ("a.txt", b"good\nb\xffd\n", "a.txt, line 2: the byte 0xff is not UTF-8 text"),
        ("a.txt", b"\xff\xfea", "a.txt: cannot be read (not utf-16 text"),
        ("a.gz", b"no gzip at all", "a.gz: cannot be read (Not a gzipped file"),
        (
            "a.gz",
            gzip.compress(b"x" * 9999, mtime=0)[:-9],
            "a.gz: cannot be read (Compressed file ended",
        ),
        (
            "a.gz",
            gzip.compress(b"xyz" * 99, mtime=0)[:10] + b"\xff" * 40,
            "a.gz: cannot be read (Error -3",
        ),
        ("a.xz", b"no xz", "a.xz: cannot be read (Input format not supported"),
        ("a.xz", lzma.compress(b"x" * 9999)[:-9], "a.xz: cannot be read (Compressed file ended"),
        ("a.jsonl", b'{"txt": "a"}\n{"txt": "b"}', "cannot tell which column holds the text"),
        ("a.jsonl", b'{"text": null}', "no row of it has a text"),
        ("a.jsonl", b"[1]", "line 1: not a JSON object"),
        ("a.jsonl", b'"text"', "line 1: not a JSON object"),
        ("a.jsonl", b'{"text": [5]}', "line 1: 'text' is a list, not text"),
        ("a.jsonl", b"[" * 200_000, "line 1: not valid JSON (nested too deeply)"),
        ("a.jsonl", b"{", "line 1: not valid JSON"),
    ],
)
def test_bad_files(name: str, content: bytes, fault: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BertsmithError) as caught:
        read_texts(None, tmp_path / name)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_files(tmp_path: Path) -> None:
    with pytest.raises(BertsmithError, match="no such file or folder"):
        read_texts(None, tmp_path / "nothing.txt")
    with pytest.raises(BertsmithError, match="is a folder; give a file"):
        read_texts(None, tmp_path)
    with pytest.raises(BertsmithError, match="give texts or --file, not both"):
        read_texts(["a"], tmp_path)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "standard input is empty"),
        (b"a\n\xff\n", "standard input, line 2: the byte 0xff is not UTF-8"),
    ],
)
def test_bad_standard_input(content: bytes, fault: str, run: Run, model: Path) -> None:
    with pytest.raises(BertsmithError, match=fault):
        run("tokenizer", "show", model, text=content)


def test_half_a_character_in_a_record(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a\\ud800"}')
    with pytest.raises(BertsmithError, match="half of a surrogate pair"):
        run("embed", model, "--file", tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("short", 10, "short"),
        ("exactly ten", 11, "exactly ten"),
        ("rather longer", 8, "rather …"),
        ("two\nlines\x1b[31m", 40, "two lines [31m"),
        ("", 5, ""),
    ],
)
def test_long_texts_are_clipped_for_the_eye(text: str, most: int, shown: str) -> None:
    assert clipped(text, most) == shown


def test_a_dash_is_standard_input(run: Run, model: Path) -> None:
    assert texts_of(run, model, "-", text="one\ntwo\n") == ["one", "two"]
    assert texts_of(run, model, "--file", "-", text="one\ntwo\n") == ["one", "two"]


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_int8_without_instructions_for_it_is_noted_once(
    kind: str, run: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr("bertsmith.cpu.program.exact_weights", lambda: kind)
    shared._note_slow_int8.cache_clear()
    words = ("embed", model, "The river.", "--json", "--dtype")
    assert "int8" not in run(*words, "float32").err
    first, second = (run(*words, "int8") for _ in range(2))
    assert ("no fast int8 instructions" in first.err) == (kind == "uint8")
    assert "int8" not in second.err
    assert [*first.rows[0]] == ["text", "vector"]
    shared._note_slow_int8.cache_clear()
