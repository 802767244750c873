"""Input files of a corpus: their kinds and their bytes."""

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertsmith.errors import BertsmithError
from bertsmith.files import PACKED, reading, suffix_of

Kind = Literal["text", "whole", "records", "table"]  # whole: a file of text is one document
KINDS: dict[str, Kind] = {".txt": "text", ".md": "text", ".rst": "text"}
KINDS |= {".jsonl": "records", ".ndjson": "records", ".parquet": "table"}
# Files that people name by mistake: as plain text they would be read with all their marks.
OTHERS = (".csv", ".tsv", ".json", ".xlsx", ".xls", ".pdf", ".docx", ".doc", ".html", ".htm")


@dataclass(frozen=True)
class InputFile:
    """A file of the corpus, as it was when the work began."""

    path: str  # absolute, so that it is valid for remote workers and later runs
    kind: Kind
    size: int
    changed: int  # nanoseconds


def find_files(paths: Iterable[str | Path], pipes: bool = False) -> tuple[list[InputFile], int]:
    """The files, those in folders by name, and the number skipped; with `pipes`, pipes too."""
    inputs: list[InputFile] = []
    left = 0
    if isinstance(paths, str | Path):
        paths = [paths]
    for path in map(Path, paths):
        if path.is_dir():
            inside, others = _folder(path)
            inputs += inside
            left += others
            continue
        suffix = suffix_of(path)
        if suffix in OTHERS:
            raise BertsmithError(
                f"{path}: {suffix} files are not read here; save their texts as .txt (a blank"
                ' line between documents) or .jsonl ({"text": ...} on each line)'
            )
        inputs.append(_input(path, KINDS.get(suffix, "text"), pipes))
    if not inputs:
        raise BertsmithError("no files: name text, jsonl or parquet files, or folders of them")
    return inputs, left


def _folder(folder: Path) -> tuple[list[InputFile], int]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    visible = [path for path in paths if "/." not in f"/{path.relative_to(folder).as_posix()}"]
    kinds = [(path, KINDS.get(suffix_of(path))) for path in visible]
    inputs = [_input(path, kind) for path, kind in kinds if kind is not None]
    if not inputs:
        endings = f"{', '.join(KINDS)} (or in these and {', '.join(PACKED)})"
        raise BertsmithError(f"{folder}: contains no file that ends in {endings}")
    return inputs, len(visible) - len(inputs)


def _input(path: Path, kind: Kind, pipes: bool = False) -> InputFile:
    with reading(path):
        state = path.stat()
    if not (stat.S_ISREG(state.st_mode) or (pipes and stat.S_ISFIFO(state.st_mode))):
        raise BertsmithError(f"{path}: not a regular file, and it is read more than once")
    if kind == "table" and path.suffix in PACKED:
        raise BertsmithError(f"{path}: decompress it first; parquet is compressed internally")
    name = path if stat.S_ISFIFO(state.st_mode) else path.resolve()
    return InputFile(str(name), kind, state.st_size, state.st_mtime_ns)
