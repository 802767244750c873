"""One of several choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.model import Hidden
from bertsmith.tasks.windows import Window, Windower

if TYPE_CHECKING:
    from bertsmith.tasks.loaded import LoadedModel


@dataclass(frozen=True)
class Choice:
    """The best choice, and how likely each was."""

    index: int
    text: str
    scores: list[float]


def choose(bert: LoadedModel, prompt: str, choices: Sequence[str]) -> Choice:
    """The choice that goes best with the prompt."""
    if not choices:
        raise BertsmithError("there is nothing to choose from")
    return choose_many(bert, [prompt], [choices])[0]


def choose_many(
    bert: LoadedModel, prompts: Sequence[str], choices: Sequence[Sequence[str]]
) -> list[Choice]:
    """The best choice for each prompt. A long prompt is read in windows, each with the choice."""
    grouped = choice_windows(bert, prompts, choices, bert.windower())

    def compute(hidden: Hidden, batch: Batch, chosen: list[int]) -> list[float]:
        return list(bert.model.heads["choose"](hidden, batch).float().flatten().tolist())

    scores = iter(bert.run([window for group in grouped for window in group], compute))
    results = []
    for group, texts in zip(grouped, choices, strict=True):
        row = torch.tensor([next(scores) for _ in group])
        chances = pooled_scores(row, [window.number for window in group]).softmax(0).tolist()
        best = max(range(len(texts)), key=chances.__getitem__)
        results.append(Choice(best, texts[best], chances))
    return results


def choice_windows(
    bert: LoadedModel, prompts: Sequence[str], choices: Sequence[Sequence[str]], how: Windower
) -> list[list[Window]]:
    """The windows of every prompt with each of its choices; a window's number is its choice's."""
    asked = bert.token_ids(prompts)
    flat = iter(bert.token_ids([text for texts in choices for text in texts]))
    grouped = []
    for number, (prompt, texts) in enumerate(zip(asked, choices, strict=True)):
        group: list[Window] = []
        for place in range(len(texts)):
            group += [replace(one, number=place) for one in how.beside(number, prompt, next(flat))]
        grouped.append(group)
    return grouped


def pooled_scores(scores: Tensor, owners: Sequence[int]) -> Tensor:
    """The best score of each choice's windows: what speaks for it may stand in any of them."""
    if len(owners) == len(set(owners)):
        return scores
    place = torch.tensor(owners, device=scores.device)
    lowest = scores.new_full((max(owners) + 1,), float("-inf"))
    return lowest.scatter_reduce(0, place, scores, "amax")
