"""Documents made of drawn words, in every kind of file, and folders compared byte by byte."""

from __future__ import annotations

import gzip
import json
import lzma
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow
import zstandard
from pyarrow import parquet

from tasks.words import LINES

WORDS = [word for word in LINES.split() if word.isalpha()]
Document = list[str]  # paragraphs


def documents(count: int, seed: int = 0, paragraphs: int = 4) -> list[Document]:
    """Documents of one to some paragraphs, of one to six sentences each."""
    rng = random.Random(seed)

    def sentence() -> str:
        words = rng.choices(WORDS, k=rng.randint(3, 14))
        return " ".join(words).capitalize() + rng.choice([".", ".", "!", "?"])

    def paragraph() -> str:
        return " ".join(sentence() for _ in range(rng.randint(1, 6)))

    return [[paragraph() for _ in range(rng.randint(1, paragraphs))] for _ in range(count)]


def as_text(given: Iterable[Document]) -> str:
    """One paragraph a line, a blank line between documents."""
    return "\n\n".join("\n".join(document) for document in given) + "\n"


def write(path: Path, given: Iterable[Document]) -> Path:
    """Write documents as the kind of file that the name says."""
    given = list(given)
    if path.suffix == ".parquet":
        texts = ["\n".join(document) for document in given]
        parquet.write_table(pyarrow.table({"text": texts, "n": range(len(texts))}), path)
        return path
    packed = path.suffix in {".gz", ".xz", ".zst"}
    kind = (path.with_suffix("") if packed else path).suffix
    content = as_text(given)
    if kind == ".jsonl":
        rows = (json.dumps({"text": "\n".join(document), "n": 1}) for document in given)
        content = "\n".join(rows)
    path.write_bytes(pack(path.suffix, content.encode()))
    return path


def pack(suffix: str, content: bytes) -> bytes:
    """Compress as the end of a file's name says."""
    packers: dict[str, Any] = {
        ".gz": gzip.compress,
        ".xz": lzma.compress,
        ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    }
    return packers.get(suffix, bytes)(content)


def files(folder: Path, *, leave: Iterable[str] = ("plan.json",)) -> dict[str, bytes]:
    """Every file of a prepared folder; the plan names paths and times, so it is left out."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in found}
    return {name: path.read_bytes() for name, path in names.items() if name not in set(leave)}


def shards(folder: Path) -> dict[str, bytes]:
    """The files of both splits."""
    return {n: data for n, data in files(folder).items() if n.startswith(("train", "held_out"))}
