"""Texts that belong together, from documents without labels: what `adapt` trains on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath

from bertsmith.examples.draw import bits
from bertsmith.search.passages import SENTENCE, joined_text
from bertsmith.search.store import StoredPassage

SHORTEST, LONGEST = 12, 400  # characters of a query
WHOLE = 25  # characters of a sentence, at least
LEAST = 80  # characters of the text that a query belongs to
ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+(.+)$", re.MULTILINE)
LINK = re.compile(r"\[\[([^\]|#]+)(?:[^\]]*)\]\]|\[([^\]]+)\]\(([^)\s#]+)(?:#[^)]*)?\)")


@dataclass(frozen=True)
class Pair:
    """A text such as a person might search for, the text that it belongs to, and their source."""

    kind: str  # title, heading, sentence, item, neighbour, link
    query: str
    text: str
    passages: frozenset[int]  # of the document that they are from: none of them is a negative


def pairs_of(documents: Sequence[Sequence[StoredPassage]], seed: int = 0) -> list[list[Pair]]:
    """The pairs of each document, whose passages are in order.

    Titles and headings with the text below them, a sentence or an item of a list with the passage
    that it was taken from, a sentence with the next passage, and links with what they lead to.
    Nothing that makes up a query stays in the text that belongs to it.
    """
    targets = {_page(passages[0].file): passages for passages in documents if passages}
    return [list(_pairs(passages, targets, seed)) for passages in documents]


def _pairs(
    passages: Sequence[StoredPassage], targets: Mapping[str, Sequence[StoredPassage]], seed: int
) -> Iterator[Pair]:
    own = frozenset(one.id for one in passages)
    made = [*_above(passages), *_inside(passages, seed), *_onwards(passages, seed)]
    for kind, query, text in made:
        query = " ".join(query.split())
        if SHORTEST <= len(query) <= LONGEST and len(text) >= LEAST:
            yield Pair(kind, query, text, own)
    for query, other in _links(passages, targets):
        text = _joined(other[0], other[0].text)
        if SHORTEST <= len(query) <= LONGEST and len(text) >= LEAST:
            yield Pair("link", query, text, own | {one.id for one in other})


def _above(passages: Sequence[StoredPassage]) -> Iterator[tuple[str, str, str]]:
    """Titles and headings, each with the first text below it."""
    first = passages[0]
    yield "title", first.title, _body(first)
    seen = {""}
    for one in passages:
        heading = one.heading.rpartition(" > ")[2]
        if heading not in seen and heading != one.title:
            title = one.title if one.title not in one.heading else ""
            yield "heading", f"{title} {heading}", _body(one)
        seen.add(heading)


def _inside(passages: Sequence[StoredPassage], seed: int) -> Iterator[tuple[str, str, str]]:
    """A sentence of each passage, and an item of a list, with the rest of the passage."""
    for one in passages:
        body = _body(one)
        items = [match[1] for match in ITEM.finditer(body)]
        for kind, parts in (("item", items), ("sentence", _sentences(body))):
            if len(parts) > 2:
                part = _chosen(parts, seed, kind, one.id)
                yield kind, part, _joined(one, body.replace(part, " "))


def _onwards(passages: Sequence[StoredPassage], seed: int) -> Iterator[tuple[str, str, str]]:
    """A sentence of each passage with the next passage, without what the two share."""
    for one, after in pairwise(passages):
        parts = _sentences(one.text[: max(0, after.start - one.start)])
        if parts:
            yield "neighbour", _chosen(parts, seed, "neighbour", one.id), _joined(after, after.text)


def _links(
    passages: Sequence[StoredPassage], targets: Mapping[str, Sequence[StoredPassage]]
) -> Iterator[tuple[str, Sequence[StoredPassage]]]:
    """The words of links to other documents, with these documents; each document once."""
    seen = {_page(passages[0].file)}
    for one in passages:
        for match in LINK.finditer(one.text):
            page = _page(match[1] or match[3])
            if page in targets and page not in seen:
                seen.add(page)
                yield " ".join((match[1] or match[2]).split()), targets[page]


def _page(path: str) -> str:
    """The name by which a link names a document: that of the file, without its ending."""
    return PurePath(path.strip()).stem.casefold()


def _body(passage: StoredPassage) -> str:
    """The text of a passage without the title and the headings at its beginning."""
    text, above = passage.text.lstrip(), {passage.title, *passage.heading.split(" > ")}
    while text:
        line, _, rest = text.partition("\n")
        if line.strip("#= \r\t") in above or not line.strip("#=-* \r\t"):
            text = rest.lstrip()
            continue
        break
    # Some collections repeat the title as the first sentence.
    title = re.escape(" ".join(passage.title.split())).replace(r"\ ", r"\s+")
    return re.sub(rf"^{title}[\s.:]*", "", text, flags=re.IGNORECASE) if title else text


def _joined(passage: StoredPassage, text: str) -> str:
    return joined_text(passage.title, passage.heading, text.strip())


def _sentences(text: str) -> list[str]:
    """The sentences that could be a query."""
    places = [0, *(match.end() for match in SENTENCE.finditer(text)), len(text)]
    parts: Iterable[str] = (text[start:end].strip() for start, end in pairwise(places))
    return [part for part in parts if WHOLE <= len(part) <= LONGEST and " " in part]


def _chosen(parts: Sequence[str], *keys: int | str) -> str:
    return parts[int(bits(*keys) % len(parts))]
