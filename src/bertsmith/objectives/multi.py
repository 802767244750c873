"""Several objectives over one model, as one module that gives one loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith.examples import Example
from bertsmith.model import Model
from bertsmith.objectives.objective import EncoderPass, Objective


class MultiObjective(nn.Module):
    """A model and what it learns. Forward gives a loss to differentiate, and what to report."""

    def __init__(
        self, model: Model, objectives: Sequence[Objective], weights: Mapping[str, float]
    ) -> None:
        super().__init__()
        self.model = model
        self.objectives: Any = nn.ModuleList(objectives)
        self.weights = dict(weights)  # of each term, by its name

    def counts(self, example: Example) -> Counter[str]:
        """How many guesses each term makes on an example."""
        found: Counter[str] = Counter()
        for objective in self.objectives:
            found.update(objective.counts(example))
        return found

    def forward(
        self, example: Example, counts: Mapping[str, float]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, each term divided by the count it is given (of all parts of a step).

        Beside it, for each term, its sum and how many guesses were right; and for each ratio
        that is reported, which has no count beforehand, the whole and the part.
        """
        encoder_pass = EncoderPass(self.model, example)
        losses, found = [], {}
        for objective in self.objectives:
            for term in objective.terms(encoder_pass, example):
                share = self.weights.get(term.name, 1.0) / max(counts[term.name], 1)
                losses.append(term.sum * share)
                found[term.name] = torch.stack([term.sum.detach().double(), term.right.double()])
            for name, (part, whole) in objective.ratios.items():
                found[name] = torch.stack([whole.double(), part.double()])
        return torch.stack(losses).sum(), found
