"""CoNLL files (a word a line, its tag in a column) and CoNLL-U treebanks → tagged sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from bertsmith.data.examples import Tagged, Where, joined
from bertsmith.data.files import numbered_lines, read_text
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger

DOCUMENT = "-DOCSTART-"
COMMENT = re.compile(r"#\s?(id|sent_id|text|newdoc|newpar|global)\b|#.*\s=\s")
CONLL_2003 = ("word", "pos", "chunk", "ner")
CONLL_U = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


class Line(NamedTuple):
    """A line of a sentence, in cells."""

    number: int
    cells: list[str]


def read_conll(
    path: Path, ledger: Ledger, words: str | None = None, tags: str | None = None
) -> tuple[list[Tagged], dict[str, str]]:
    """Tagged sentences, and the columns that they were read from: the first, and the last.

    Columns are told by number from 1, or, where there are four as in CoNLL-2003, by name.
    """
    sentences = list(conll_sentences(path, numbered_lines(read_text(path)), ledger))
    if not sentences:
        raise BertsmithError(f"{path}: there are no sentences in it")
    return tagged(path, sentences, ledger, words, tags)


def tagged(
    path: Path,
    sentences: Sequence[list[Line]],
    ledger: Ledger,
    words: str | None = None,
    tags: str | None = None,
) -> tuple[list[Tagged], dict[str, str]]:
    """Sentences of lines as tagged words, and the columns that were read."""
    first = sentences[0][0]
    width = len(first.cells)
    if width < 2:
        raise BertsmithError(
            f"{path}, line {first.number}: a word and no tag; CoNLL files have a tag on each line"
        )
    word_at = _column(path, words, width, 0)
    tag_at = _column(path, tags, width, width - 1)
    language = _language([line.cells[word_at] for lines in sentences for line in lines])
    if language:
        ledger.note(f"words without the {language!r} before them", sum(map(len, sentences)))
    examples = []
    for lines in sentences:
        spelled = tuple(line.cells[word_at][len(language) :] for line in lines)
        text, offsets = joined(spelled)
        marked = tuple(line.cells[tag_at] for line in lines)
        numbers = tuple(line.number for line in lines)
        where = Where(str(path), numbers[0])
        examples.append(Tagged(text, spelled, offsets, marked, where, numbers))
    return examples, {"tokens": _name(word_at, width), "tags": _name(tag_at, width)}


def looks_like_conll(text: str) -> bool:
    """Do lines of mostly one width, in groups between blank lines, make this a CoNLL file?"""
    lines = [line for _, line in numbered_lines(text[:20_000])]
    widths = Counter(len(_cells(line)) for line in lines if line.strip() and line[0] != "#")
    width, times = widths.most_common(1)[0] if widths else (0, 0)
    grouped = any(not line.strip() for line in lines)
    return grouped and 2 <= width <= 20 and times > 0.5 * widths.total()


def conll_sentences(
    path: Path, numbered: Iterable[tuple[int, str]], ledger: Ledger
) -> Iterator[list[Line]]:
    """Groups of lines between blank ones; documents and comments are counted and left out."""
    lines: list[Line] = []
    width = 0
    for number, text in numbered:
        cells = _cells(text)
        if not text.strip():
            if lines:
                yield lines
            lines = []
        elif cells[0] == DOCUMENT:
            ledger.note("-DOCSTART- lines, left out")
        elif text.startswith("#") and (COMMENT.match(text) or width not in (0, len(cells))):
            ledger.note("comments, left out")
        else:
            width = width or len(cells)
            if len(cells) != width:
                raise BertsmithError(
                    f"{path}, line {number}: {len(cells)} columns where the lines before have "
                    f"{width}; a word, its tag and nothing else stand on a line"
                )
            if not all(cells):
                raise BertsmithError(f"{path}, line {number}: an empty word or tag")
            lines.append(Line(number, cells))
    if lines:
        yield lines


def _cells(text: str) -> list[str]:
    """Tabs part cells, else spaces (no others: some words hold a no-break space)."""
    if "\t" in text:
        return text.split("\t")
    return [cell for cell in text.split(" ") if cell]


def _column(path: Path, said: str | None, width: int, default: int) -> int:
    if said is None:
        return default
    names = CONLL_2003 if width == len(CONLL_2003) else ()
    if said.lower() in names:
        return names.index(said.lower())
    if said.isdigit() and 1 <= int(said) <= width:
        return int(said) - 1
    known = f" or {', '.join(names)}" if names else ""
    raise BertsmithError(f"{path}: no column {said!r}; they are 1 to {width}{known}")


def _name(place: int, width: int) -> str:
    return CONLL_2003[place] if width == len(CONLL_2003) else str(place + 1)


def _language(words: Sequence[str]) -> str:
    """The "en:" that WikiANN writes before each word, if this file has it before all."""
    prefix = re.match(r"[a-z]{2,3}(-[a-z]+)*:(?=.)", words[0])
    same = prefix and all(w.startswith(prefix[0]) and len(w) > len(prefix[0]) for w in words)
    return prefix[0] if prefix and same else ""


# ------------------------------------------------------------------ CoNLL-U


def read_conllu(
    path: Path, ledger: Ledger, tags: str | None = None
) -> tuple[list[Tagged], dict[str, str]]:
    """Sentences of a treebank: syntactic words with their part of speech (or another column).

    Every word is a stretch of the text. Words that share a multiword token stand as they do in
    it where they spell it (do, n't), and apart where they do not (du: de, le).
    """
    column = conllu_column(path, tags)
    numbered = numbered_lines(read_text(path))
    examples = list(conllu_sentences(path, numbered, column, ledger))
    wanted = CONLL_U[column]
    if not examples:
        raise BertsmithError(f"{path}: there are no sentences in it")
    if all(tag == "_" for example in examples for tag in example.tags or ()):
        raise BertsmithError(f"{path}: its column {wanted} is empty; choose with --tags-column")
    return examples, {"tokens": "form", "tags": wanted}


def conllu_column(path: Path, tags: str | None = None) -> int:
    """Which column holds the tags: parts of speech, unless another is named."""
    wanted = (tags or "upos").lower()
    if wanted not in CONLL_U[2:]:
        raise BertsmithError(f"{path}: no column {tags!r}; known: {', '.join(CONLL_U[2:])}")
    return CONLL_U.index(wanted)


def conllu_sentences(
    path: Path, numbered: Iterable[tuple[int, str]], column: int, ledger: Ledger
) -> Iterator[Tagged]:
    """Every sentence of a treebank's lines."""
    lines: list[Line] = []
    for number, text in chain(numbered, [(0, "")]):
        if not text.strip():
            if lines:
                yield _sentence(path, lines, column, ledger)
            lines = []
        elif not text.startswith("#"):
            cells = text.split("\t")
            if len(cells) != len(CONLL_U):
                raise BertsmithError(
                    f"{path}, line {number}: {len(cells)} columns where CoNLL-U has {len(CONLL_U)}"
                )
            lines.append(Line(number, cells))


def _sentence(path: Path, lines: list[Line], column: int, ledger: Ledger) -> Tagged:
    words: list[str] = []
    spaces: list[bool] = []
    kept: list[Line] = []
    inside = 0  # words that the multiword token goes on for
    for place, line in enumerate(lines):
        number, form = line.cells[0], line.cells[1]
        if "." in number:
            ledger.note("empty nodes, left out")
            continue
        if "-" in number:
            first, last = _range(path, line)
            parts = [other.cells[1] for other in lines[place + 1 :] if _within(other, first, last)]
            spelled = "".join(parts) == form
            if not spelled:
                ledger.note("multiword tokens read as the words that they stand for")
            # A space comes after each of the words, unless they spell the token as it is.
            inside, end = last - first + 1, _space(line)
            pending = [not spelled] * (inside - 1) + [end]
            continue
        spaces.append(pending[-inside] if inside else _space(line))
        inside = max(0, inside - 1)
        words.append(form)
        kept.append(line)
    if not kept:
        raise BertsmithError(f"{path}, line {lines[0].number}: a sentence without words")
    text, offsets = joined(tuple(words), tuple(spaces))
    marked = tuple(line.cells[column] for line in kept)
    numbers = tuple(line.number for line in kept)
    return Tagged(text, tuple(words), offsets, marked, Where(str(path), numbers[0]), numbers)


def _range(path: Path, line: Line) -> tuple[int, int]:
    first, _, last = line.cells[0].partition("-")
    if not (first.isdigit() and last.isdigit() and int(first) <= int(last)):
        raise BertsmithError(f"{path}, line {line.number}: {line.cells[0]!r} is no range of words")
    return int(first), int(last)


def _within(line: Line, first: int, last: int) -> bool:
    return line.cells[0].isdigit() and first <= int(line.cells[0]) <= last


def _space(line: Line) -> bool:
    return "SpaceAfter=No" not in line.cells[9].split("|")
