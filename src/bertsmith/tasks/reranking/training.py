"""Learning to rank: the passages of a query compete in one batch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.reranking.reading import Passages
from bertsmith.tasks.training import (
    Sample,
    Targets,
    TaskOptions,
    Training,
    TrainingItem,
    best_in_grid,
    grid_cells,
    item_weights,
    label_config,
    soft_grid_loss,
)

LOSSES = ("listwise", "pairwise", "pointwise")
DRAWN = 4  # passages of other queries beside a query that has no passage to tell apart
# As sentence-transformers' CrossEncoder writes it: its scores are probabilities, as ours are.
CROSS_ENCODER = {"activation_fn": "torch.nn.modules.activation.Sigmoid"}


class RerankingTraining(Training):
    """The score of a passage is that of its best window; losses compare the passages of a query.

    listwise: the cross entropy of all scores with the share of each grade (ListNet). pairwise: the
    better of two passages is to have the higher score (RankNet). pointwise: the probability of each
    passage is to be its grade, scaled to 0 to 1.
    """

    head = "classify"
    exact = True

    def __init__(self, dataset: Dataset[Any], options: TaskOptions) -> None:
        super().__init__(dataset, options)
        self.kind = options.loss or LOSSES[0]
        grades = [grade for one in dataset.gold() for grade in one.grades]
        self.highest = max(grades, default=0.0)
        if self.highest <= 0:
            raise BertsmithError(
                f"{dataset.path}: no passage has a grade above 0: nothing to learn"
            )

    def config_changes(self) -> dict[str, Any]:
        """One output, and how sentence-transformers reads it."""
        changes = label_config(("relevance",), None)
        return {**changes, "ranks_passages": True, "sentence_transformers": CROSS_ENCODER}

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """One item for each query, with all its passages."""
        completed = with_others(examples)
        count = sum(a is not b for a, b in zip(completed, examples, strict=True))
        bert.ledger.note(f"queries without a negative, which got {DRAWN} of other queries", count)
        windower, samples = self.windower(bert), list[Sample]()
        for number, example in enumerate(completed):
            if self.kind != "pointwise" and len(set(example.grades or ())) < 2:
                continue  # nothing to compare
            query, *passages = bert.token_ids(example.texts)
            windows = [
                replace(window, number=place)
                for place, passage in enumerate(passages)
                for window in windower.pair(number, query, passage)
            ]
            samples.append((TrainingItem(tuple(windows), example.grades),))
        return samples

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """The query and the passage of every window (N,), the grades (Q, width), weights (Q,).

        Where a query has fewer passages than the widest one, its grades are -1.
        """
        width = max(len(item.target) for item in items)
        grades = torch.full((len(items), width), -1.0)
        for row, item in enumerate(items):
            grades[row, : len(item.target)] = torch.tensor(item.target) / self.highest
        cells = grid_cells(items, width)
        return {"cells": cells, "grades": grades, "weights": item_weights(items)}

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        """One of the three losses, a value for each query, times its weight."""
        grades = targets["grades"]
        scores = best_in_grid(outputs, targets["cells"], grades.shape)
        return (RULES[self.kind](scores, grades) * targets["weights"]).sum()

    def soft_loss(
        self, outputs: Tensor, batch: Batch, targets: Targets, temperature: float
    ) -> Tensor:
        """The divergence from a teacher's scores of the same passages."""
        return soft_grid_loss(outputs, targets, targets["grades"].shape, temperature)


def _listwise(scores: Tensor, grades: Tensor) -> Tensor:
    shares = grades.clamp(min=0)
    shares = shares / shares.sum(-1, keepdim=True).clamp(min=1e-9)
    return -(shares * scores.log_softmax(-1)).sum(-1)


def _pairwise(scores: Tensor, grades: Tensor) -> Tensor:
    better = (grades[:, :, None] > grades[:, None, :]) & (grades[:, None, :] >= 0)
    apart = F.softplus(scores[:, None, :] - scores[:, :, None])
    return (apart * better).sum((1, 2)) / better.sum((1, 2)).clamp(min=1)


def _pointwise(scores: Tensor, grades: Tensor) -> Tensor:
    there = grades >= 0
    loss = F.binary_cross_entropy_with_logits(scores, grades.clamp(min=0), reduction="none")
    return (loss * there).sum(-1) / there.sum(-1).clamp(min=1)


RULES = {"listwise": _listwise, "pairwise": _pairwise, "pointwise": _pointwise}


def with_others(examples: Sequence[Passages]) -> list[Passages]:
    """The same, but queries whose passages are equally good get some of other queries."""
    every = [text for example in examples for text in example.passages]
    completed = []
    for number, example in enumerate(examples):
        if example.grades and len(set(example.grades)) == 1 and example.grades[0] > 0:
            drawn = np.random.default_rng(number).permutation(len(every))[: 4 * DRAWN]
            others = dict.fromkeys(every[place] for place in drawn)
            negatives = [text for text in others if text not in example.passages][:DRAWN]
            grades = example.grades + (0.0,) * len(negatives)
            example = replace(example, passages=(*example.passages, *negatives), grades=grades)
        completed.append(example)
    return completed
