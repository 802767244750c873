"""Labels for texts, or for pairs of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from bertsmith.batch import Batch
from bertsmith.model import Hidden

if TYPE_CHECKING:
    from bertsmith.tasks.loaded import LoadedModel


@dataclass(frozen=True)
class Classification:
    """The best label and its probability; of a model with one output, its value."""

    label: str
    score: float
    scores: dict[str, float]  # every label's


def classify(
    bert: LoadedModel, texts: Sequence[str], pairs: Sequence[str] | None
) -> list[Classification]:
    """A label for every text (or pair). Windows of a long one vote, by length."""
    windows = bert.windows(texts, pairs)
    labels = bert.checkpoint.labels
    single = len(labels) == 1 or bert.checkpoint.settings.get("problem_type") == "regression"
    several = bert.checkpoint.settings.get("problem_type") == "multi_label_classification"

    def compute(hidden: Hidden, batch: Batch, chosen: list[int]) -> list[torch.Tensor]:
        logits = bert.model.heads["classify"](hidden, batch).float()
        scores = logits if single else logits.sigmoid() if several else logits.softmax(-1)
        return list(scores.cpu())

    total = torch.zeros(len(texts), len(labels))
    weight = torch.zeros(len(texts), 1)
    for window, scores in zip(windows, bert.run(windows, compute), strict=True):
        total[window.number] += scores * len(window.tokens or (0,))
        weight[window.number] += len(window.tokens or (0,))
    results = []
    for row in (total / weight).tolist():
        best = max(range(len(labels)), key=row.__getitem__)
        results.append(Classification(labels[best], row[best], dict(zip(labels, row, strict=True))))
    return results
