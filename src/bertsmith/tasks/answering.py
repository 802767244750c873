"""Answers that stand in a passage."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

from bertsmith.batch import Batch
from bertsmith.model import Hidden
from bertsmith.tasks.spans import trimmed
from bertsmith.tasks.windows import Window

if TYPE_CHECKING:
    from bertsmith.tasks.loaded import LoadedModel


@dataclass(frozen=True)
class Answer:
    """passage[start:end]; the empty answer says that the passage has none."""

    text: str
    start: int
    end: int
    score: float  # probability among all stretches of the passage


@dataclass(frozen=True)
class Found:
    """What the windows of a passage say of a question: stretches, best first, and "none"."""

    passage: str
    ranked: list[tuple[int, int, float]]  # start, end, score
    nothing: float  # the score of "no answer"
    total: float  # the logarithm of the sum over all stretches

    @property
    def no_answer(self) -> float:
        """The probability of "no answer" against the best answer."""
        if not self.ranked:
            return 1.0
        return 1 / (1 + math.exp(min(700.0, self.ranked[0][2] - self.nothing)))

    def answers(self, top: int, empty: bool) -> list[Answer]:
        """The best answers; with `empty`, "no answer" is one of those that compete."""
        total, ranked = self.total, self.ranked
        if empty:
            larger, smaller = max(total, self.nothing), min(total, self.nothing)
            total = larger + math.log1p(math.exp(smaller - larger))
            ranked = sorted([*ranked, (0, 0, self.nothing)], key=lambda one: -one[2])
        return [
            Answer(self.passage[start:end], start, end, math.exp(value - total))
            for start, end, value in ranked[:top]
        ]


def answer(
    bert: LoadedModel, question: str, passage: str, top: int, longest: int, empty: bool
) -> list[Answer]:
    """The `top` best stretches of at most `longest` tokens, from all windows of the passage."""
    return find_answers(bert, [question], [passage], top, longest)[0].answers(top, empty)


def find_answers(
    bert: LoadedModel,
    questions: Sequence[str],
    passages: Sequence[str],
    top: int = 1,
    longest: int = 30,
) -> list[Found]:
    """Many questions at once, each about its own passage."""
    texts = [*questions, *passages]
    # What is no string cannot be told apart; the tokenizer says which it is.
    unique = list(dict.fromkeys(texts)) if all(isinstance(one, str) for one in texts) else texts
    encoded = dict(zip(unique, bert.encode(unique), strict=True))
    windower = bert.windower()
    grouped = [
        windower.pair(number, encoded[question].ids, encoded[passage].ids)
        for number, (question, passage) in enumerate(zip(questions, passages, strict=True))
    ]

    def compute(hidden: Hidden, batch: Batch, chosen: list[int]) -> list[torch.Tensor]:
        return list(batch.layout.split(bert.model.heads["answer"](hidden, batch).float().cpu()))

    scores = iter(bert.run([window for group in grouped for window in group], compute))
    found = []
    for passage, group in zip(passages, grouped, strict=True):
        read = encoded[passage]
        spans, nothing = _spans(group, scores, len(read), longest)
        found.append(_ranked(passage, read.offsets, spans, nothing, top))
    return found


def _ranked(
    passage: str,
    offsets: Sequence[tuple[int, int]],
    spans: torch.Tensor,
    nothing: float,
    top: int,
) -> Found:
    """The best `top` stretches of characters."""
    best: dict[tuple[int, int], float] = {}
    width = spans.shape[1]
    # Stretches that differ in spaces only are one answer, so more than `top` are looked at.
    values, places = spans.flatten().topk(min(20 + 4 * top, spans.numel()))
    for value, place in zip(values.tolist(), places.tolist(), strict=True):
        first, more = divmod(place, width)
        if value > -math.inf:
            start, end = trimmed(passage, offsets[first][0], offsets[first + more][1])
            if start < end:
                best.setdefault((start, end), value)  # the best comes first
    total = float(spans.flatten().double().logsumexp(0)) if spans.numel() else -math.inf
    ranked = sorted(((*place, value) for place, value in best.items()), key=lambda one: -one[2])
    return Found(passage, ranked[:top], nothing, total)


def _spans(
    windows: Sequence[Window], found: Iterator[torch.Tensor], length: int, longest: int
) -> tuple[torch.Tensor, float]:
    """The score of every stretch of the passage (its first token, how many more), and of none."""
    longest = max(1, min(longest, length))
    spans = torch.full((length, longest), -math.inf)
    nothing = math.inf
    for window in windows:
        scores = next(found)
        nothing = min(nothing, float(scores[0].sum()))  # there is none if no window has one
        if window.tokens:
            begins, stops = scores[window.first : window.first + len(window.tokens)].unbind(1)
            ends = pad(stops, (0, longest - 1), value=-math.inf).unfold(0, longest, 1)
            part = spans[window.tokens.start : window.tokens.stop]
            part.copy_(part.maximum(begins[:, None] + ends))
    return spans, nothing
