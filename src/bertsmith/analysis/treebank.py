"""Sentences with dependencies, from CoNLL-U files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bertsmith.errors import BertsmithError

COLUMNS = 10


@dataclass(frozen=True)
class Word:
    """One word: where it stands in the text, its part of speech, and what it depends on."""

    start: int
    end: int
    tag: str  # universal part of speech
    head: int  # the place of the word it depends on, from 0; -1 for the root
    relation: str  # without its subtype: nsubj, not nsubj:pass


@dataclass(frozen=True)
class Sentence:
    """A text and its words."""

    text: str
    words: list[Word]


def sentences(lines: Sequence[str], name: str = "file") -> Iterator[Sentence]:
    """The sentences of a CoNLL-U file, a blank line after each."""
    block: list[tuple[int, list[str]]] = []
    for number, line in enumerate([*lines, ""], 1):
        if line.startswith("#"):
            continue
        if line.strip():
            fields = line.split("\t")
            if len(fields) != COLUMNS:
                raise BertsmithError(
                    f"{name}, line {number}: {len(fields)} columns; CoNLL-U has {COLUMNS}"
                )
            block.append((number, fields))
        elif block:
            yield _sentence(block, name)
            block = []


def _sentence(block: list[tuple[int, list[str]]], name: str) -> Sentence:
    """Words on the text as it was written; those that share letters share them in order."""
    text = ""
    rows: list[tuple[int, tuple[int, int], str, str, str]] = []
    places: dict[str, int] = {}  # the file's number of a word → its place
    inside: list[str] = []  # the words of a written one that stands for several (du = de + le)
    written, start = "", 0
    for number, fields in block:
        key, form, tag, head, relation = (fields[n] for n in (0, 1, 3, 6, 7))
        if "." in key:
            continue  # a word that is understood but not written
        if "-" in key:
            first, _, last = key.partition("-")
            inside = [str(n) for n in range(int(first), int(last) + 1)]
            written, start = form, len(text)
            text += form + _space(fields)
            continue
        if key in inside:
            # do + n't: the parts of don't; where the parts are spelled anew, the first has all.
            found = written.find(form, 0 if key == inside[0] else 1)
            span = (start + found, start + found + len(form)) if found >= 0 else (start, start)
            if found < 0 and key == inside[0]:
                span = (start, start + len(written))
        else:
            span = (len(text), len(text) + len(form))
            text += form + _space(fields)
        places[key] = len(rows)
        rows.append((number, span, tag, head, relation.partition(":")[0]))
    words = []
    for number, span, tag, head, relation in rows:
        if head != "0" and head not in places:
            raise BertsmithError(f"{name}, line {number}: no word has the number {head!r}")
        words.append(Word(*span, tag, -1 if head == "0" else places[head], relation))
    return Sentence(text.rstrip(), words)


def _space(fields: list[str]) -> str:
    return "" if "SpaceAfter=No" in fields[9] else " "
