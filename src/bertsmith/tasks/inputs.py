"""Files to predict on: any data file, with or without gold, or plain lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.tasks.data import Labelled, Where, read_data
from bertsmith.tasks.data.conll import looks_like_conll
from bertsmith.tasks.data.files import read_text, suffix_of


@dataclass(frozen=True)
class Inputs:
    """What to predict on."""

    path: Path
    examples: list[Any]


def read_inputs(path: str | Path, task: str, columns: Mapping[str, str] | None = None) -> Inputs:
    """Read a file for a model of a task. A .txt file is a text a line; of tagging, words too."""
    path = Path(path)
    single = task in ("classification", "multilabel", "regression", "tagging", "similarity")
    if single and suffix_of(path) == ".txt":
        content = read_text(path)
        if not (task == "tagging" and looks_like_conll(content)):
            return Inputs(path, _lines(path, content))
    if task == "tagging" and suffix_of(path) not in (".txt", ".conllu", ".conll"):
        try:
            return Inputs(path, read_data(path, task, columns=columns).examples)
        except BertsmithError as error:
            plain = _texts(path, columns)
            if plain is None:
                raise error from None
            return Inputs(path, plain)
    if task == "similarity":
        task = "regression"  # two texts, or one, whatever else there is
    return Inputs(path, read_data(path, task, columns=columns).examples)


def _lines(path: Path, content: str) -> list[Labelled]:
    lines = content.splitlines()
    if not lines:
        raise BertsmithError(f"{path}: there are no lines in it")
    return [
        Labelled(line, None, None, Where(str(path), number)) for number, line in enumerate(lines, 1)
    ]


def _texts(path: Path, columns: Mapping[str, str] | None) -> list[Labelled] | None:
    """Rows of whole texts, where a file has no lists of words."""
    named = {role: name for role, name in (columns or {}).items() if role == "text"}
    try:
        found = read_data(path, "classification", columns=named).examples
    except BertsmithError:
        return None
    return [Labelled(one.text, None, None, one.where) for one in found]
