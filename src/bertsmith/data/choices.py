"""Multiple choice: SWAG, OpenBookQA and their like, from tables with one row a question."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bertsmith.data.columns import Finder, plain
from bertsmith.data.examples import Options, Where
from bertsmith.data.rows import Row, Table, list_cell, text_cell
from bertsmith.errors import BertsmithError

LETTERED = re.compile(r"\(([A-Z0-9])\)")  # OpenBookQA's table: (A) one (B) another
KEYS = "ABCDEFGHIJ"


def has_choices(finder: Finder) -> bool:
    """Do the columns look like questions with choices?"""
    if finder.numbered("ending", "choice", "option"):
        return True
    options = next((finder.by_plain[n] for n in ("choices", "endings") if n in finder.by_plain), "")
    return bool(options) or _nested(finder.table) is not None


def read_choices(table: Table, finder: Finder) -> list[Options]:
    """Rows with a prompt, the choices (in one column or several) and which of them is right."""
    nested = _nested(table)
    several = [] if "options" in finder.given else finder.numbered("ending", "choice", "option")
    prompt = finder.note("prompt", nested) if nested else finder.needed("prompt")
    single = "" if several or nested else finder.needed("options")
    if several:
        finder.note("options", f"{several[0]} to {several[-1]}")
    answer = finder.known("answer")
    begins = finder.by_plain.get("sent2") if plain(prompt) == "sent1" else None  # SWAG's
    examples = []
    for row in table.rows:
        where = table.where(row)
        asked = row.cells.get(prompt)
        keys: Sequence[str] = ()
        if nested:
            if not isinstance(asked, dict):
                raise BertsmithError(f"{where}: {prompt!r} has no stem and choices")
            options, keys = _listed(asked.get("choices"), where, "choices")
            asked = asked.get("stem")
        elif several:
            options = [text_cell(row.cells.get(name), where, name) for name in several]
        else:
            options, keys = _listed(row.cells.get(single), where, single)
        if begins:
            start = text_cell(row.cells.get(begins), where, begins)
            options = [f"{start} {option}".strip() for option in options]
        if len(options) < 2:
            raise BertsmithError(f"{where}: {len(options)} choices; there must be two or more")
        label = _label(row, answer, options, keys or KEYS, where)
        examples.append(Options(text_cell(asked, where, prompt), tuple(options), label, where))
    return examples


def _nested(table: Table) -> str | None:
    """The column of OpenBookQA's jsonl that holds {"stem": ..., "choices": [...]}."""
    if not table.rows:
        return None
    first = table.rows[0].cells
    found = (n for n, v in first.items() if isinstance(v, dict) and {"stem", "choices"} <= set(v))
    return next(found, None)


def _listed(value: Any, where: Where, column: str) -> tuple[list[str], Sequence[str]]:
    """Choices and what each is called, from the ways in which one cell holds several."""
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        keys = [str(key) for key in value.get("label") or ()]
        return [text_cell(text, where, column) for text in value["text"]], keys
    if isinstance(value, str) and LETTERED.search(value) and not value.strip().startswith("["):
        return _lettered(value)
    listed = list_cell(value, where, column)
    if listed and all(isinstance(one, dict) for one in listed):
        keys = [str(one.get("label", "")) for one in listed]
        return [text_cell(one.get("text"), where, column) for one in listed], keys
    return [text_cell(one, where, column) for one in listed], ()


def _lettered(value: str) -> tuple[list[str], Sequence[str]]:
    """(A) one (B) another: only letters in their order begin a choice, so that it may hold some."""
    marks: list[re.Match[str]] = []
    for match in LETTERED.finditer(value):
        before = ord(marks[-1][1]) if marks else ord(match[1]) - 1
        if ord(match[1]) == before + 1:
            marks.append(match)
    ends = [*(mark.start() for mark in marks[1:]), len(value)]
    options = [value[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)]
    return options, [mark[1] for mark in marks]


def _label(
    row: Row,
    answer: str | None,
    options: list[str],
    keys: Sequence[str],
    where: Where,
) -> int | None:
    """Which choice is right: told by its letter, its number from 0, or its words."""
    value = row.cells.get(answer) if answer else None
    if value is None or value == "" or value == -1 or value == "-1":
        return None
    spoken = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    for names in (keys, [str(number) for number in range(len(options))], options):
        if spoken in names and list(names).index(spoken) < len(options):
            return list(names).index(spoken)
    raise BertsmithError(f"{where}: {answer!r} is {spoken!r}, which is none of the choices")
