"""Several objectives over one model, as one module with one loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith.examples import Example
from bertsmith.model import Model
from bertsmith.objectives.contrastive import Compare
from bertsmith.objectives.objective import EncoderPass, Objective


class MultiObjective(nn.Module):
    """A model with its objectives; forward returns the weighted loss and the sums to report."""

    def __init__(
        self, model: Model, objectives: Sequence[Objective], weights: Mapping[str, float]
    ) -> None:
        super().__init__()
        self.model = model
        self.objectives: Any = nn.ModuleList(objectives)
        self.weights = dict(weights)  # weights of loss terms by name; 1 by default

    @property
    def leaves_unused(self) -> bool:
        """Whether some parameters get no gradient (those after the states that objectives read)."""
        return all(objective.reads_states for objective in self.objectives)

    def counts(self, example: Example) -> Counter[str]:
        """The number of predictions of each term on an example."""
        counts: Counter[str] = Counter()
        for objective in self.objectives:
            counts.update(objective.counts(example))
        return counts

    def forward(
        self,
        example: Example,
        counts: Mapping[str, float | Tensor] | None,
        compare: Compare | None = None,
    ) -> Any:
        """The loss, each term divided by its count over the whole step; and the sums to report.

        The sums are (loss, correct predictions) of each term, and (denominator, numerator) of each
        ratio. Without counts, returns the vectors of the texts instead; `compare` compares them
        with all texts of the step.
        """
        states = any(objective.reads_states for objective in self.objectives)
        encoder_pass = EncoderPass(self.model, example, states=states, compare=compare)
        if counts is None or compare is not None:
            _ = encoder_pass.hidden  # first: both passes draw the same dropout
        if counts is None:
            (comparing,) = (own for own in self.objectives if own.compares)
            return comparing.texts(encoder_pass, example)
        losses, sums = [], {}
        for objective in self.objectives:
            for term in objective.terms(encoder_pass, example):
                losses.append(term.sum * self._weight(term.name, counts[term.name]))
                sums[term.name] = torch.stack([term.sum.detach().float(), term.correct.float()])
            for name, (numerator, denominator) in objective.ratios.items():
                sums[name] = torch.stack([denominator.float(), numerator.float()])
        return torch.stack(losses).sum(), sums

    def _weight(self, name: str, count: float | Tensor) -> Any:
        count = count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1)
        return self.weights.get(name, 1.0) / count
