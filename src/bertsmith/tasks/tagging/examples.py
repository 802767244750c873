"""Words with tags, texts with annotated spans (spaCy, Prodigy, doccano), and how both convert."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertsmith.data.predictions import SUFFIX
from bertsmith.data.tables import Where
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.ledger import Ledger
from bertsmith.numbers import parse_whole
from bertsmith.tasks.reading import OneText

SPAN_FORMATS = ("spacy", "prodigy", "doccano")
CharacterSpan = tuple[int, int, str]  # start, end and label
Words = tuple[str, ...]
Offsets = tuple[tuple[int, int], ...]  # the characters of each word


@dataclass(frozen=True, slots=True)
class Tagged(OneText):
    """A sentence whose words have tags; word i is text[slice(*offsets[i])]."""

    words: Words
    offsets: Offsets
    tags: tuple[str, ...] | None
    where: Where
    lines: tuple[int, ...] | None = None  # of each word, in files with a line a word

    @property
    def gold(self) -> tuple[str, ...] | None:
        return self.tags

    @property
    def label_names(self) -> tuple[str, ...]:
        return self.tags or ()

    def at(self, word: int) -> Where:
        if self.lines is None:
            return self.where
        return Where(self.where.file, self.lines[word])


@dataclass(frozen=True, slots=True)
class Annotated(OneText):
    """A text whose entities are marked by characters; its words are those of a model."""

    spans: tuple[CharacterSpan, ...] | None  # None: not annotated
    where: Where

    @property
    def gold(self) -> tuple[CharacterSpan, ...] | None:
        return self.spans

    @property
    def label_names(self) -> tuple[str, ...]:
        """The tags that its spans may need, however a model splits the text into words."""
        if self.spans is None:
            return ()
        return ("O", *(f"{mark}-{label}" for _, _, label in self.spans for mark in "BI"))


def joined(words: Words, spaces: tuple[bool, ...] | None = None) -> tuple[str, Offsets]:
    """Words joined to a text, with a space after each (or where `spaces` is true), and offsets."""
    text, offsets = "", []
    for word, space in zip(words, spaces or (True,) * len(words), strict=True):
        offsets.append((len(text), len(text) + len(word)))
        text += word + " " * space
    return text[: offsets[-1][1]] if offsets else "", tuple(offsets)


def read_spans(
    text: str, value: Any, where: Where, column: str, ledger: Ledger
) -> tuple[CharacterSpan, ...] | None:
    """The annotated spans of a text, without blanks around them; None where there are none."""
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise BertsmithError(f"{where}: {column!r} is not a list of spans")
    spans = []
    for start, end, label in (_span(one, where, column) for one in value):
        if start < 0 or end > len(text):
            ledger.note("spans outside their text, left out")
            continue
        marked = text[start:end]
        left = start + len(marked) - len(marked.lstrip())
        right = left + len(marked.strip())
        if left >= right:
            ledger.note("spans that contain no word, left out")
            continue
        if (left, right) != (start, end):
            ledger.note("spans with blanks around them, which are cut off")
        spans.append((left, right, label))
    return tuple(sorted(set(spans)))


def tags_of_spans(
    offsets: Sequence[tuple[int, int]], spans: Sequence[CharacterSpan], ledger: Ledger
) -> tuple[str, ...]:
    """BIO tags of words, given by their characters; entities that tags cannot express are noted.

    A span takes every word that it touches. Of spans that share a word, the longest is kept.
    """
    tags = ["O"] * len(offsets)
    starts, ends = [start for start, _ in offsets], [end for _, end in offsets]
    for start, end, label in sorted(spans, key=lambda span: span[0] - span[1]):
        first, last = bisect_right(ends, start), bisect_left(starts, end)
        if first >= last:
            ledger.note("entities in which the tokenizer sees no word, not trained on")
        elif any(tag != "O" for tag in tags[first:last]):
            ledger.note("entities that share a word with a longer one, not trained on")
        else:
            if (starts[first], ends[last - 1]) != (start, end):
                ledger.note("entities that end inside a word, trained on as whole words")
            tags[first:last] = [f"B-{label}", *[f"I-{label}"] * (last - first - 1)]
    return tuple(tags)


def _span(value: Any, where: Where, column: str) -> CharacterSpan:
    if isinstance(value, Mapping):
        start = value.get("start", value.get("start_offset"))
        end = value.get("end", value.get("end_offset"))
        value = (start, end, value.get("label"))
    if not isinstance(value, list | tuple) or len(value) < 3:
        raise BertsmithError(f"{where}: {column!r} has a span that is not start, end and label")
    first, last, label = parse_whole(value[0]), parse_whole(value[1]), value[2]
    if first is None or last is None or not isinstance(label, str) or not label.strip():
        raise BertsmithError(f"{where}: {column!r} has a span that is not start, end and label")
    return first, last, label.strip()


def spans_record(
    kind: str, text: str, words: Sequence[str], entities: Sequence[Any], others: Mapping[str, Any]
) -> Any:
    """A text, its words and entities as an annotation tool reads them back; `others` go along."""
    listed = [[one["start"], one["end"], one["label"]] for one in entities]
    if kind == "spacy":
        return [text, {"entities": listed}]
    if kind == "doccano":
        rest = {key: value for key, value in others.items() if key not in ("text", "label")}
        return {"text": text, "label": listed, **rest}
    offsets, place = [], 0
    for word in words:
        place = max(place, text.find(word, place))
        offsets.append((place, place := place + len(word)))
    starts, ends = [start for start, _ in offsets], [end for _, end in offsets]
    tokens = [
        {"text": text[start:end], "start": start, "end": end, "id": number}
        for number, (start, end) in enumerate(offsets)
    ]
    spans = []
    for start, end, label in listed:
        first = min(bisect_right(ends, start), max(0, len(offsets) - 1))
        last = max(first, bisect_left(starts, end) - 1)
        span = {"start": start, "end": end, "label": label}
        spans.append({**span, "token_start": first, "token_end": last})
    meta = {key: value for key, value in others.items() if key not in ("text", "tokens", "spans")}
    return {"text": text, "tokens": tokens, "spans": spans, **({"meta": meta} if meta else {})}


def predicted_spans(kind: str, row: Mapping[str, Any]) -> Any:
    """A row with its predicted entities, as an annotation tool reads it."""
    entities = row.get(f"entities{SUFFIX}", row.get("entities"))
    text = row.get("text")
    if not isinstance(entities, list) or not isinstance(text, str):
        raise BertsmithError(f"{setting_name('format', kind)} is for models that tag entities")
    results = ("words", "tags", "entities")
    words = row.get(f"words{SUFFIX}", row.get("words"))
    names = {*results, *(f"{name}{SUFFIX}" for name in results)}
    others = {name: value for name, value in row.items() if name not in names}
    return spans_record(kind, text, words or (), entities, others)
