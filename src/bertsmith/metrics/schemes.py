"""Tagging schemes: BIO (IOB2), IOB1, IOBES and BILOU; read, checked and converted."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from bertsmith.errors import BertsmithError

TAG = re.compile(r"O|[BIESLU](-.+)?", re.DOTALL)
SCHEMES = ("bio", "iob1", "iobes", "bilou")
# What begins, goes on, ends and is alone, in each scheme that says so of every word.
MARKS = {"bio": "BIIB", "iobes": "BIES", "bilou": "BILU"}


class Chunk(NamedTuple):
    """An entity: its type, its first word, and the end (exclusive) of its last."""

    type: str
    start: int
    stop: int


def split(tag: str) -> tuple[str, str]:
    """A tag's mark and type: B-PER is (B, PER), O is (O, ""), and B alone is (B, _)."""
    mark, _, kind = tag.partition("-")
    return mark, kind or ("" if mark == "O" else "_")


def detect(sequences: Iterable[Sequence[str]]) -> str | None:
    """Return the scheme of tagged sentences, or None if tags are not entities (parts of speech).

    IOB1 starts entities with I- and uses B- only between two adjacent entities of the same type.
    Tags that are valid in both BIO and IOB1 count as BIO; tags that are invalid in both are BIO
    with mistakes.
    """
    listed = list(sequences)
    tags = {tag for sentence in listed for tag in sentence}
    marks = {split(tag)[0] for tag in tags}
    if marks <= {"O"} or not all(TAG.fullmatch(tag) for tag in tags):
        return None
    if marks & set("LU"):
        return "bilou"
    if marks & set("ES"):
        return "iobes"
    bad = any(True for sentence in listed for _ in faults(sentence, "bio"))
    old = not any(True for sentence in listed for _ in faults(sentence, "iob1"))
    return "iob1" if bad and old else "bio"


def chunks(tags: Sequence[str]) -> list[Chunk]:
    """Return the entities of tags, read as conlleval and seqeval do: any I- may start an entity."""
    entities: list[Chunk] = []
    start, open_type = 0, ""
    for place, tag in enumerate([*tags, "O"]):
        mark, kind = split(tag)
        goes_on = open_type and kind == open_type and mark in ("I", "E", "L")
        if open_type and not goes_on:
            entities.append(Chunk(open_type, start, place))
        if kind and not goes_on:
            start = place
        open_type = kind
        if kind and mark in ("E", "L", "S", "U"):  # which close what they stand in
            entities.append(Chunk(kind, start, place + 1))
            open_type = ""
    return entities


def strict_chunks(tags: Sequence[str], scheme: str) -> list[Chunk]:
    """Return only the entities that are tagged without a mistake, as in seqeval's strict mode."""
    closed = _known(scheme) != "bio"  # an entity must end by a mark of its own
    entities: list[Chunk] = []
    opened: Chunk | None = None
    for place, tag in enumerate([*tags, "O"]):
        mark, kind = split(tag)
        if opened and kind == opened.type and mark in ("I", "E", "L"):
            if mark != "I":
                entities.append(Chunk(kind, opened.start, place + 1))
                opened = None
            continue
        if opened and not closed:
            entities.append(Chunk(opened.type, opened.start, place))
        opened = Chunk(kind, place, place) if mark == "B" else None
        if mark in ("S", "U"):
            entities.append(Chunk(kind, place, place + 1))
    return entities


def spell(entities: Iterable[Chunk], length: int, scheme: str) -> list[str]:
    """The tags of entities in a sentence of so many words."""
    tags = ["O"] * length
    before = Chunk("", -1, -1)
    for chunk in sorted(entities, key=lambda chunk: chunk.start):
        if chunk.start < before.stop:
            raise BertsmithError(f"entities overlap at word {chunk.start}: not expressible as tags")
        if scheme == "iob1":
            touches = chunk.start == before.stop and chunk.type == before.type
            begin, inside, last, alone = tuple("BIIB" if touches else "IIII")
        else:
            begin, inside, last, alone = tuple(MARKS[_known(scheme)])
        count = chunk.stop - chunk.start
        marks = [alone] if count == 1 else [begin, *[inside] * (count - 2), last]
        ending = "" if chunk.type == "_" else f"-{chunk.type}"
        tags[chunk.start : chunk.stop] = [mark + ending for mark in marks]
        before = chunk
    return tags


def convert(tags: Sequence[str], scheme: str) -> list[str]:
    """Convert tags to another scheme; the entities stay the same."""
    return spell(chunks(tags), len(tags), scheme)


def faults(tags: Sequence[str], scheme: str) -> Iterator[tuple[int, str]]:
    """Return the words whose tags violate the scheme, with the reason."""
    allowed = "BI" if scheme == "iob1" else MARKS[_known(scheme)]
    for place, (before, tag) in enumerate(pairwise(["O", *tags, "O"])):
        (last, kind), (mark, here) = split(before), split(tag)
        inside = last in ("B", "I") and kind == here  # an entity of this type is open
        goes_on = inside and mark in ("I", "E", "L")
        if mark not in ("O", *allowed):
            yield place, f"{tag} has no place in {scheme.upper()}"
        elif scheme == "iob1":
            if mark == "B" and not inside:
                yield place, f"{tag} after {before}: nothing of its type is before it"
        elif mark in ("I", "E", "L") and not goes_on:
            yield place, f"{tag} after {before}: no entity of this type before it"
        if scheme in ("iobes", "bilou") and last in ("B", "I") and not goes_on:
            yield place - 1, f"{before} before {tag}: the entity has no end"


def _known(scheme: str) -> str:
    if scheme not in MARKS:
        raise BertsmithError(f"unknown scheme {scheme!r}; known: {', '.join(MARKS)}")
    return scheme
