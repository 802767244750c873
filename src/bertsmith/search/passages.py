"""Passages: a document cut at headings, paragraphs and sentences, with overlap."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from bertsmith.errors import BertsmithError
from bertsmith.search.formats import ParsedDocument

# The end of a sentence: punctuation (with closing quotes) before a space, or that of scripts
# without spaces; a line feed ends a unit too, so that verse, lists and code are cut at lines,
# unless the next line continues in lower case: wrapped prose.
SENTENCE = re.compile(
    r"(?<=[.!?…])[\"'»”’)\]]*\s+|(?<=[。！？｡।॥؟])[\"'»”’」』)\]]*\s*|\n{2,}|\n(?![a-zà-öø-ÿ])"
)
READING = 2  # raised when files are read or cut in another way: updates then read all of them again
MOST_HEADING = 300  # characters of the path of headings


@dataclass(frozen=True)
class Chunking:
    """How documents are cut, in characters."""

    size: int = 1600
    overlap: int = 200

    def __post_init__(self) -> None:
        if not 50 <= self.size <= 100_000:
            raise BertsmithError(f"the size of passages is from 50 to 100,000, not {self.size}")
        if not 0 <= self.overlap <= self.size // 2:
            most = "half of their size"
            raise BertsmithError(f"the overlap of passages is from 0 to {most}, not {self.overlap}")


@dataclass(frozen=True)
class Passage:
    """Characters `start` to `end` of a text, with the line and the headings above them."""

    text: str
    start: int
    end: int
    line: int
    heading: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a text that passages do not cross; its headings end at `body`."""

    start: int
    body: int
    end: int
    heading: str = ""


def cut(document: ParsedDocument, how: Chunking) -> Iterator[Passage]:
    """Yield the passages of a document in order; together they contain all of its text."""
    text = document.text
    for section in _sections(document):
        for start, end in _spans(text, section, how):
            line, shift = document.line_at(start), document.offset
            yield Passage(text[start:end], start + shift, end + shift, line, section.heading)
    if not text.strip() and document.title.strip():
        yield Passage("", 0, 0, document.line)


def joined_text(title: str, heading: str, text: str) -> str:
    """Return the text to embed for a passage: title, headings and text, without repetitions."""
    above = [heading] if title and heading.startswith(title) else [title, heading]
    return "\n".join(part for part in [*above, text] if part)


def _sections(document: ParsedDocument) -> list[Section]:
    """Pages of a PDF; else the parts between headings, of which those without a text are joined."""
    text = document.text
    if document.unit == "page" and document.lines:
        places = [place for place, _ in document.lines]
        return [Section(a, a, b) for a, b in pairwise([*places, len(text)])]
    sections: list[Section] = []
    above: dict[int, str] = {}  # level → heading
    start, path = 0, ""
    ends = [*(place for place, *_ in document.headings), len(text)]
    for (place, level, heading), end in zip([(0, 0, ""), *document.headings], ends, strict=True):
        if level:
            above = {outer: name for outer, name in above.items() if outer < level}
            above[level] = heading
            path = " > ".join(above.values())[:MOST_HEADING]
        if not _is_bare(text[place:end], heading):
            body = place + len(text[place:end].partition("\n")[0]) if level else start
            sections.append(Section(start, body, end, path))
            start = end
    if not sections:
        return [Section(0, 0, len(text), path)]
    sections[-1] = replace(sections[-1], end=len(text))
    return sections


def _is_bare(text: str, heading: str) -> bool:
    """Whether a text is only its heading, with or without Markdown's marks."""
    return " ".join(text.strip("#=- \t\r\n").split()) == heading.strip("#=- ")


def _spans(text: str, section: Section, how: Chunking) -> Iterator[tuple[int, int]]:
    """Spans of at most `size` characters that begin and end with whole units."""
    units = list(_units(text, section.start, section.end, how.size))
    _fit_heading(text, units, section.body, how.size)
    begin = 0
    while begin < len(units):
        stop = begin + 1
        while stop < len(units) and units[stop][1] - units[begin][0] <= how.size:
            stop += 1
        if stop < len(units):
            stop = _paragraph_end(text, units, begin, stop)
        yield units[begin][0], units[stop - 1][1]
        if stop >= len(units):
            return
        first, begin = begin + 1, stop
        while begin > first and units[stop - 1][1] - units[begin - 1][0] <= how.overlap:
            begin -= 1


def _fit_heading(text: str, units: list[tuple[int, int]], body: int, size: int) -> None:
    """Shorten the first unit below the headings, if it leaves no room for them in a passage."""
    lead = sum(end <= body for _, end in units)
    if 0 < lead < len(units) and units[lead][1] - units[0][0] > size:
        room = size - (units[lead][0] - units[0][0])
        if room >= size // 2:
            units[lead : lead + 1] = _shortened(text, *units[lead], room)


def _paragraph_end(text: str, units: list[tuple[int, int]], begin: int, stop: int) -> int:
    """Prefer the end of a paragraph, if that leaves at least half of the passage."""
    half = (units[begin][0] + units[stop - 1][1]) / 2
    for place in range(stop, begin, -1):
        if units[place - 1][1] < half:
            break
        if text.count("\n", units[place - 1][1], units[place][0]) > 1:
            return place
    return stop


def _units(text: str, first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    """Sentences and lines, stripped; longer ones are cut at white space."""
    start = first
    ends = [match.end() for match in SENTENCE.finditer(text, first, last)]
    for end in [*ends, last]:
        yield from _shortened(text, start, end, size)
        start = end


def _shortened(text: str, start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    while True:
        while start < end and text[start].isspace():
            start += 1
        while end > start and text[end - 1].isspace():
            end -= 1
        if start >= end:
            return
        if end - start <= size:
            yield start, end
            return
        half, full = start + size // 2, start + size
        cut_at = text.rfind("\n", half, full) + 1 or text.rfind(" ", half, full) + 1 or full
        yield from _shortened(text, start, cut_at, size)
        start = cut_at
