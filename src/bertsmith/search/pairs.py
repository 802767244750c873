"""Texts that belong together, from documents without labels: what `adapt` trains on."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
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
    """The pairs of each document, whose passages are in order; no text contains its query."""
    targets = {_page(passages[0].file): passages for passages in documents if passages}
    return [list(_pairs(passages, targets, seed)) for passages in documents]


def _pairs(
    passages: Sequence[StoredPassage], targets: Mapping[str, Sequence[StoredPassage]], seed: int
) -> Iterator[Pair]:
    own = frozenset(passage.id for passage in passages)
    pairs = chain(_above(passages), _inside(passages, seed), _onwards(passages, seed))
    every = [Pair(kind, " ".join(query.split()), text, own) for kind, query, text in pairs]
    for query, other in _links(passages, targets):
        ids = own.union(passage.id for passage in other)
        every.append(Pair("link", query, _joined(other[0], other[0].text), ids))
    for pair in every:
        if SHORTEST <= len(pair.query) <= LONGEST and len(pair.text) >= LEAST:
            yield pair


def _above(passages: Sequence[StoredPassage]) -> Iterator[tuple[str, str, str]]:
    """Titles and headings, each with the first text below it."""
    yield "title", passages[0].title, _body(passages[0])
    seen = {""}
    for passage in passages:
        heading = passage.heading.rpartition(" > ")[2]
        if heading not in seen and heading != passage.title:
            title = passage.title if passage.title not in passage.heading else ""
            yield "heading", f"{title} {heading}", _body(passage)
        seen.add(heading)


def _inside(passages: Sequence[StoredPassage], seed: int) -> Iterator[tuple[str, str, str]]:
    """A sentence of each passage, and an item of a list, with the rest of the passage."""
    for passage in passages:
        body = _body(passage)
        for kind, texts in (("item", ITEM.findall(body)), ("sentence", _sentences(body))):
            if len(texts) > 2:
                text = _chosen(texts, seed, kind, passage.id)
                yield kind, text, _joined(passage, body.replace(text, " "))


def _onwards(passages: Sequence[StoredPassage], seed: int) -> Iterator[tuple[str, str, str]]:
    """A sentence of each passage with the next passage, without what the two share."""
    for passage, after in pairwise(passages):
        sentences = _sentences(passage.text[: max(0, after.start - passage.start)])
        if sentences:
            sentence = _chosen(sentences, seed, "neighbour", passage.id)
            yield "neighbour", sentence, _joined(after, after.text)


def _links(
    passages: Sequence[StoredPassage], targets: Mapping[str, Sequence[StoredPassage]]
) -> Iterator[tuple[str, Sequence[StoredPassage]]]:
    """The words of links to other documents, with these documents; each document once."""
    seen = {_page(passages[0].file)}
    for passage in passages:
        for match in LINK.finditer(passage.text):
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
        if line.strip("#= \r\t") not in above and line.strip("#=-* \r\t"):
            break
        text = rest.lstrip()
    # Some collections repeat the title as the first sentence.
    title = re.escape(" ".join(passage.title.split())).replace(r"\ ", r"\s+")
    return re.sub(rf"^{title}[\s.:]*", "", text, flags=re.IGNORECASE) if title else text


def _joined(passage: StoredPassage, text: str) -> str:
    return joined_text(passage.title, passage.heading, text.strip())


def _sentences(text: str) -> list[str]:
    places = [0, *(match.end() for match in SENTENCE.finditer(text)), len(text)]
    sentences = (text[start:end].strip() for start, end in pairwise(places))
    return [text for text in sentences if WHOLE <= len(text) <= LONGEST and " " in text]


def _chosen(texts: Sequence[str], *keys: int | str) -> str:
    return texts[int(bits(*keys) % len(texts))]
