"""Labels for words, and the entities that they spell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import torch

from bertsmith.batch import Batch
from bertsmith.model import Hidden
from bertsmith.tasks.spans import blank, trimmed, wordless
from bertsmith.tasks.windows import clearest
from bertsmith.tokenizer import Encoding

if TYPE_CHECKING:
    from bertsmith.tasks.bert import Bert


@dataclass(frozen=True)
class Entity:
    """A labelled stretch of a text: text[start:end]."""

    label: str
    text: str
    start: int
    end: int
    score: float  # probability; of several words, their mean


def tag_words(bert: Bert, texts: Sequence[str]) -> list[list[Entity]]:
    """Every word of every text with its label: that of the word's first token."""
    encoded = bert.encode(texts)
    windower, labels = bert.windower(), bert.checkpoint.labels
    grouped = [windower.single(number, one.ids) for number, one in enumerate(encoded)]

    def compute(hidden: Hidden, batch: Batch, chosen: list[int]) -> list[torch.Tensor]:
        scores = bert.model.heads["tag"](hidden, batch).float().softmax(-1).cpu()
        return list(batch.layout.split(scores))

    scores = iter(bert.run([window for group in grouped for window in group], compute))
    results = []
    for text, encoding, group in zip(texts, encoded, grouped, strict=True):
        found = [next(scores)[w.first : w.first + len(w.tokens)] for w in group]
        best = clearest([window.tokens for window in group], len(encoding))
        row = []
        for token, start, end in words(text, encoding):
            inside = found[best[token]][token - group[best[token]].tokens.start]
            score, label = inside.max(0)
            row.append(Entity(labels[int(label)], text[start:end], start, end, float(score)))
        results.append(row)
    return results


def words(text: str, encoding: Encoding) -> Iterator[tuple[int, int, int]]:
    """The first token of every word, and the characters from where to where the word goes.

    Punctuation at a word's ends stands alone, also where a tokenizer splits at spaces only.
    """
    done = 0
    tokens = [token for token, number in enumerate(encoding.words) if number is not None]
    for _, group in groupby(tokens, key=encoding.words.__getitem__):
        for part in _parts(text, encoding.offsets, list(group)):
            start = max(done, encoding.offsets[part[0]][0])
            start, end = trimmed(text, start, encoding.offsets[part[-1]][1])
            if start < end:
                yield part[0], start, end
                done = end


def _parts(text: str, offsets: Sequence[tuple[int, int]], inside: list[int]) -> list[list[int]]:
    """The tokens of what a tokenizer calls a word: punctuation, the word itself, punctuation."""
    shown = {token: text[slice(*offsets[token])] for token in inside}
    spelled = [token for token in inside if not wordless(shown[token])] or [-1]
    parts = [inside[:1]]
    for before, token in pairwise(inside):
        within = spelled[0] <= before and token <= spelled[-1]
        # A space belongs to what follows; and several tokens may spell one character.
        if within or all(map(blank, shown[before])) or offsets[token][0] < offsets[before][1]:
            parts[-1].append(token)
        else:
            parts.append([token])
    return parts


def tag(bert: Bert, texts: Sequence[str]) -> list[list[Entity]]:
    """The entities of every text; where labels have no B- and I-, every word and its label."""
    spelled = any(label[:2] in ("B-", "I-") for label in bert.checkpoint.labels)
    rows = zip(texts, tag_words(bert, texts), strict=True)
    return [entities(text, row) if spelled else row for text, row in rows]


def entities(text: str, labelled: Sequence[Entity]) -> list[Entity]:
    """Words that belong together by their B-, I-, E- and S- (or L- and U-) labels."""
    groups: list[list[Entity]] = []
    open_label = ""
    for word in labelled:
        mark, _, label = word.label.partition("-")
        if not label:  # "O"
            open_label = ""
            continue
        if mark in ("B", "S", "U") or label != open_label:
            groups.append([])
        groups[-1].append(word)
        open_label = "" if mark in ("E", "L", "S", "U") else label
    return [
        Entity(
            group[0].label.partition("-")[2],
            text[group[0].start : group[-1].end],
            group[0].start,
            group[-1].end,
            sum(word.score for word in group) / len(group),
        )
        for group in groups
    ]
