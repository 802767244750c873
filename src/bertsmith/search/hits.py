"""Hits: passages that match a query, with their location and scores."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from bertsmith.search.passages import SENTENCE
from bertsmith.search.store import StoredPassage

MOST_MATCHES = 200  # matches that are considered for the excerpt


@dataclass(frozen=True)
class Hit:
    """A passage that matches a query, with its location."""

    file: str
    line: int  # or row, page, paragraph: see `unit`
    unit: str
    start: int  # characters of the file's text
    end: int
    document: str  # the id of a record, "" where the file is the document
    title: str
    heading: str
    kind: str
    modified: float  # seconds since 1970
    text: str
    score: float
    keywords: float | None  # BM25, if the keyword ranking has it
    vectors: float | None  # cosine, if the vector ranking has it
    passage: int  # its id
    highlights: tuple[tuple[int, int], ...] = ()  # spans of `text` that match the query's words
    also: tuple[str, ...] = ()  # places of other passages with the same text, which are not listed

    def to_dict(self) -> dict[str, Any]:
        """The hit as plain values, for JSON."""
        return {**asdict(self), "highlights": [list(span) for span in self.highlights]}

    def excerpt(self, longest: int = 400) -> tuple[int, int]:
        """The span of `text` to show: whole sentences, where most of the matches are."""
        text, begin = self.text, self.body_start
        if len(text) - begin <= longest:
            return begin, len(text)
        borders = [match.end() for match in SENTENCE.finditer(text)]
        starts = [begin, *(place for place in borders if place > begin)]
        marks = [low for low, _ in self.highlights[:MOST_MATCHES] if low >= begin]
        sentences = {starts[bisect_right(starts, low) - 1] for low in marks} or {begin}
        start = max(sentences, key=lambda place: (*self._matches(place, place + longest), place))
        if marks and not self._matches(start, start + longest)[0]:
            # Far from the beginning of a long sentence: a few words before the match.
            start = text.rfind(" ", 0, max(0, marks[0] - longest // 4)) + 1
        start = len(text) - len(text[start:].lstrip())
        limit = start + longest
        if limit >= len(text):
            return start, len(text)
        ends = [place for place in borders if start + longest // 2 < place <= limit]
        end = ends[-1] if ends else text.rfind(" ", start, limit) + 1 or limit
        return start, start + len(text[start:end].rstrip())

    @property
    def body_start(self) -> int:
        """Return where the text continues below its own heading."""
        start, headings = 0, self.heading.split(" > ")
        first, _, rest = self.text.partition("\n")
        while rest.strip() and first.strip() and first.strip("#= \r") in headings:
            start = len(self.text) - len(rest.lstrip())
            first, _, rest = self.text[start:].partition("\n")
        return start

    def _matches(self, start: int, end: int) -> tuple[int, int]:
        """How many different words, and how many in all, match within a span."""
        marks = self.highlights[:MOST_MATCHES]
        words = [self.text[a:b].lower() for a, b in marks if start <= a and b <= end]
        return len(set(words)), len(words)

    @property
    def place(self) -> str:
        """The location as `file:line`, or with the name of another unit."""
        return place_of(self.file, self.line, self.unit)


def place_of(file: str, line: int, unit: str) -> str:
    """file:line, or file, page 3."""
    return f"{file}:{line}" if unit == "line" else f"{file}, {unit} {line}"


def best_of_documents(hits: Iterable[Hit]) -> list[Hit]:
    """The first hit of each document: a record of a table, or a file."""
    best: dict[tuple[str, str], Hit] = {}
    for hit in hits:
        best.setdefault((hit.file, hit.document), hit)
    return list(best.values())


def distinct(hits: Iterable[Hit]) -> list[Hit]:
    """The hits without those that repeat the text of a better one, which names their places."""
    best: dict[str, Hit] = {}
    for hit in hits:
        text = " ".join((hit.title if not hit.text else hit.text).split())
        former = best.setdefault(text, hit)
        if former is not hit and hit.place not in (former.place, *former.also):
            best[text] = replace(former, also=(*former.also, hit.place, *hit.also))
    return list(best.values())


def hit_of(
    passage: StoredPassage, score: float, scores: tuple[dict[int, float], dict[int, float]]
) -> Hit:
    """A hit of a stored passage: its score, and those of both methods by the passage's id."""
    values = vars(passage) | {"modified": max(0, passage.modified) / 1e9}
    number = values.pop("id")
    keywords, vectors = (ranking.get(number) for ranking in scores)
    return Hit(**values, score=score, keywords=keywords, vectors=vectors, passage=number)
