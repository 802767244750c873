"""Answers that stand in a passage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from bertsmith.batch import Batch
from bertsmith.model import Hidden

if TYPE_CHECKING:
    from bertsmith.tasks.bert import Bert


@dataclass(frozen=True)
class Answer:
    """passage[start:end]; the empty answer says that the passage has none."""

    text: str
    start: int
    end: int
    score: float  # probability among all stretches considered


def answer(
    bert: Bert, question: str, passage: str, top: int, longest: int, empty: bool
) -> list[Answer]:
    """The `top` best stretches of at most `longest` tokens, from all windows of the passage."""
    asked = bert.tokenizer.encode(question, special=False)
    read = bert.tokenizer.encode(passage, special=False)
    windows = bert.windower().pair(0, asked.ids, read.ids)
    bert.ledger.note("long passages read in windows", len(windows) > 1)

    def compute(hidden: Hidden, batch: Batch, chosen: list[int]) -> list[torch.Tensor]:
        return list(batch.layout.split(bert.model.heads["answer"](hidden, batch).float().cpu()))

    best: dict[tuple[int, int], float] = {}
    nothing = float("inf")
    for window, scores in zip(windows, bert.run(windows, compute), strict=True):
        nothing = min(nothing, float(scores[0].sum()))  # no window may have an answer
        rows = scores[window.first : window.first + len(window.tokens)]
        spans = rows[:, 0, None] + rows[None, :, 1]  # (n, n): start, end
        fits = torch.ones_like(spans, dtype=torch.bool).triu().tril(longest - 1)
        spans = spans.masked_fill(~fits, float("-inf"))
        values, places = spans.flatten().topk(min(max(20, 4 * top), spans.numel()))
        for value, place in zip(values.tolist(), places.tolist(), strict=True):
            if value > float("-inf"):
                first, last = divmod(place, len(window.tokens))
                start = read.offsets[window.tokens.start + first][0]
                end = read.offsets[window.tokens.start + last][1]
                start += len(passage[start:end]) - len(passage[start:end].lstrip())
                if start < end:
                    best[start, end] = max(value, best.get((start, end), value))
    if empty:
        best[0, 0] = nothing
    if not best:
        return []
    ranked = sorted(best, key=lambda span: -best[span])
    chances = torch.tensor([best[span] for span in ranked], dtype=torch.float64).softmax(0)
    pairs = zip(ranked[:top], chances.tolist(), strict=False)
    return [Answer(passage[start:end], start, end, chance) for (start, end), chance in pairs]
