"""Answers that stand in a passage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

from bertsmith.batch import Batch
from bertsmith.model import Hidden
from bertsmith.tasks.spans import trimmed

if TYPE_CHECKING:
    from bertsmith.tasks.bert import Bert


@dataclass(frozen=True)
class Answer:
    """passage[start:end]; the empty answer says that the passage has none."""

    text: str
    start: int
    end: int
    score: float  # probability among all stretches of the passage


def answer(
    bert: Bert, question: str, passage: str, top: int, longest: int, empty: bool
) -> list[Answer]:
    """The `top` best stretches of at most `longest` tokens, from all windows of the passage."""
    asked, read = bert.encode([question, passage])
    longest = max(1, min(longest, len(read)))
    spans, nothing = _scores(bert, asked.ids, read.ids, longest)
    found: dict[tuple[int, int], float] = {(0, 0): nothing} if empty else {}
    # Stretches that differ in spaces only are one answer, so more than `top` are looked at.
    values, places = spans.flatten().topk(min(20 + 4 * top, spans.numel()))
    for value, place in zip(values.tolist(), places.tolist(), strict=True):
        first, more = divmod(place, longest)
        if value > -math.inf:
            start, end = trimmed(passage, read.offsets[first][0], read.offsets[first + more][1])
            if start < end:
                found.setdefault((start, end), value)  # the best comes first
    everything = torch.cat([spans.flatten(), torch.tensor([nothing] if empty else [])])
    total = float(everything.double().logsumexp(0))
    ranked = sorted(found.items(), key=lambda item: -item[1])[:top]
    return [
        Answer(passage[start:end], start, end, math.exp(value - total))
        for (start, end), value in ranked
    ]


def _scores(
    bert: Bert, asked: list[int], read: list[int], longest: int
) -> tuple[torch.Tensor, float]:
    """The score of every stretch of the passage (its first token, how many more), and of none."""
    windows = bert.windower().pair(0, asked, read)

    def compute(hidden: Hidden, batch: Batch, chosen: list[int]) -> list[torch.Tensor]:
        return list(batch.layout.split(bert.model.heads["answer"](hidden, batch).float().cpu()))

    spans = torch.full((len(read), longest), -math.inf)
    nothing = math.inf
    for window, scores in zip(windows, bert.run(windows, compute), strict=True):
        nothing = min(nothing, float(scores[0].sum()))  # there is none if no window has one
        if window.tokens:
            begins, stops = scores[window.first : window.first + len(window.tokens)].unbind(1)
            ends = pad(stops, (0, longest - 1), value=-math.inf).unfold(0, longest, 1)
            part = spans[window.tokens.start : window.tokens.stop]
            part.copy_(part.maximum(begins[:, None] + ends))
    return spans, nothing
