"""Compressed files as streams: whole, or an error; for every verb that reads text."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bertsmith.cli.shared import read_texts
from bertsmith.errors import BertsmithError
from bertsmith.files import UNREADABLE, inner, open_bytes
from bertsmith.tokenizer.train import read_lines
from corpus.texts import pack

SUFFIXES = ["", ".gz", ".xz", ".zst"]


def content() -> bytes:
    rng = random.Random(0)
    return "\n".join(f"line {n} Kraków {rng.random()}" for n in range(20_000)).encode()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_content_and_place(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack(suffix, content()))
    places = [0]
    with open_bytes(path) as (stream, file):
        parts = []
        while data := stream.read(10_000):
            parts.append(data)
            places.append(file.tell())
    assert b"".join(parts) == content()
    assert places == sorted(places)
    assert places[-1] == path.stat().st_size
    assert file.closed
    assert inner(path) == tmp_path / "a.txt"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_lines(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(pack(suffix, content()))
    lines = content().decode().split("\n")
    assert list(read_lines([path])) == lines
    assert read_texts(None, path) == lines


@pytest.mark.parametrize("suffix", SUFFIXES[1:])
def test_every_truncation_is_seen(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.txt{suffix}"
    whole = pack(suffix, content()[:5000])
    for end in range(1, len(whole), 97):
        path.write_bytes(whole[:end])
        with pytest.raises(UNREADABLE), open_bytes(path) as (stream, _):
            stream.readlines()
        with pytest.raises(BertsmithError, match="cannot be read"):
            list(read_lines([path]))


def test_empty_files(tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        path = tmp_path / f"a{suffix}"
        path.write_bytes(pack(suffix, b""))
        assert list(read_lines([path])) == []
