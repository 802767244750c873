"""Labels for words, and the entities that they spell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import torch

from bertsmith.batch import Batch
from bertsmith.model import Hidden
from bertsmith.tasks.windows import clearest

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
    encoded = bert.tokenizer.encode_many(texts, special=False)
    windower = bert.windower()
    grouped = [windower.single(number, one.ids) for number, one in enumerate(encoded)]
    bert.ledger.note("long texts read in windows", sum(len(group) > 1 for group in grouped))
    windows = [window for group in grouped for window in group]

    def compute(hidden: Hidden, batch: Batch, chosen: list[int]) -> list[torch.Tensor]:
        scores = bert.model.heads["tag"](hidden, batch).float().softmax(-1).cpu()
        return list(batch.layout.split(scores))

    scores = iter(bert.run(windows, compute))
    results = []
    for text, encoding, group in zip(texts, encoded, grouped, strict=True):
        found = [rows[w.first : w.first + len(w.tokens)] for w, rows in zip(group, scores)]  # noqa: B905
        tokens = torch.zeros(len(encoding), len(bert.checkpoint.labels))
        for token, number in enumerate(clearest([w.tokens for w in group], len(encoding))):
            tokens[token] = found[number][token - group[number].tokens.start]
        results.append(
            _words(text, encoding.words, encoding.offsets, tokens, bert.checkpoint.labels)
        )
    return results


def tag(bert: Bert, texts: Sequence[str]) -> list[list[Entity]]:
    """The entities of every text; where labels have no B- and I-, every word and its label."""
    spelled = any(label[:2] in ("B-", "I-") for label in bert.checkpoint.labels)
    words = tag_words(bert, texts)
    return [entities(text, row) if spelled else row for text, row in zip(texts, words, strict=True)]


def _words(
    text: str,
    numbers: Sequence[int | None],
    offsets: Sequence[tuple[int, int]],
    scores: torch.Tensor,
    labels: Sequence[str],
) -> list[Entity]:
    found = []
    tokens = [t for t in range(len(numbers)) if numbers[t] is not None]
    for _, group in groupby(tokens, key=lambda t: numbers[t]):
        inside = list(group)
        score, label = scores[inside[0]].max(0)
        start, end = offsets[inside[0]][0], offsets[inside[-1]][1]
        start += len(text[start:end]) - len(text[start:end].lstrip())
        if start < end:
            found.append(Entity(labels[int(label)], text[start:end], start, end, float(score)))
    return found


def entities(text: str, words: Sequence[Entity]) -> list[Entity]:
    """Words that belong together by their B-, I-, E- and S- (or L- and U-) labels."""
    groups: list[list[Entity]] = []
    open_label = ""
    for word in words:
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
