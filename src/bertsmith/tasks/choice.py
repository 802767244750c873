"""One of several choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.model import Hidden

if TYPE_CHECKING:
    from bertsmith.tasks.bert import Bert


@dataclass(frozen=True)
class Choice:
    """The best choice, and how likely each was."""

    index: int
    text: str
    scores: list[float]


def choose(bert: Bert, prompt: str, choices: Sequence[str]) -> Choice:
    """The choice that goes best with the prompt."""
    if not choices:
        raise BertsmithError("there is nothing to choose from")
    windows = bert.windows([prompt] * len(choices), choices, how=bert.windower("refuse"))

    def compute(hidden: Hidden, batch: Batch, chosen: list[int]) -> list[float]:
        return list(bert.model.heads["choose"](hidden, batch).float().flatten().tolist())

    scores = torch.tensor(bert.run(windows, compute)).softmax(0).tolist()
    best = max(range(len(choices)), key=scores.__getitem__)
    return Choice(best, choices[best], scores)
