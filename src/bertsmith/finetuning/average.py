"""Model soups: the average of the weights of seeds or epochs, where it scores better on dev.

As in Wortsman et al. 2022, all are averaged, and greedily: from the best on, each is added whose
addition raises the dev score. The best run is replaced only by an average with a higher score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith.errors import BertsmithError
from bertsmith.finetuning.result import TrainingRun
from bertsmith.tasks.evaluate import Evaluation, compare
from bertsmith.train.distributed import Ranks
from bertsmith.train.state import Checkpoints

EPOCHS = 5  # of one run: as many of the last scored ones may be averaged
Look = Callable[[], Evaluation]


class WeightSnapshots:
    """Trained weights of seeds or epochs by their number, on disk if a run can be continued."""

    def __init__(self, ranks: Ranks, folder: Path | None, most: int) -> None:
        self.ranks, self.most = ranks, most
        self.stored = None if folder is None else Checkpoints(folder, most)
        self.held: dict[int, dict[str, Tensor]] = {}

    def add(self, number: int, model: nn.Module) -> None:
        """Store a copy of the trained weights."""
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if self.stored is None:
            self.held[number] = {name: p.detach().cpu().clone() for name, p in trained.items()}
            for old in sorted(self.held)[: -self.most]:
                del self.held[old]
            return
        stored, tensors = self.stored, Ranks.alone(self.ranks.device).gather(trained)
        self.ranks.run_on_first(lambda: stored.save(number, {"model": tensors}, {}))

    def numbers(self) -> list[int]:
        """The numbers of the stored weights."""
        stored = self.stored
        return sorted(self.held) if stored is None else self.ranks.run_on_first(stored.steps)

    def read(self, number: int) -> dict[str, Tensor]:
        """The weights with this number."""
        return self.stored.read(number).tensors["model"] if self.stored else self.held[number]

    def mean(self, numbers: Sequence[int]) -> dict[str, Tensor]:
        """The mean of several weights, summed in float64."""
        total: dict[str, Tensor] = {}
        for number in numbers:
            for name, value in self.read(number).items():
                total[name] = total[name] + value.double() if name in total else value.double()
        return {name: (value / len(numbers)).float() for name, value in total.items()}


def averaged(
    run: TrainingRun, weights: WeightSnapshots, scores: Mapping[int, float], of: str, look: Look
) -> tuple[TrainingRun, dict[str, Any]]:
    """The best average of the weights, if its score is higher than that of the best run.

    Returns the run, and for the report what was tried. `look` scores the run's model as it is;
    `scores` are those of the members alone.
    """
    model, metric = run.bert.model, run.settings.metric
    members = [number for number in weights.numbers() if number in scores]
    content: dict[str, Any] = {
        "of": of,
        "metric": metric,
        "kept": False,
        "single": {split: (run.scores.get(split) or {}).get(metric) for split in ("dev", "test")},
        "members": [{"number": number, "dev": scores[number]} for number in members],
        "tried": [],
    }
    if len(members) < 2 or run.dev is None:  # it ended early
        return run, content
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    tried: dict[tuple[int, ...], Evaluation] = {}

    def value(numbers: Sequence[int]) -> float:
        """The score of the average of several members, or of one member."""
        if len(numbers) == 1:
            return scores[numbers[0]]
        key = tuple(sorted(numbers))
        if key not in tried:
            assign(model, weights.mean(key))
            tried[key] = look()
        score = tried[key].scores.get(metric)
        return -math.inf if score is None or math.isnan(score) else score

    value(members)
    chosen, *rest = sorted(members, key=lambda number: -scores[number])
    greedy = [chosen]
    for number in rest:
        if value([*greedy, number]) > value(greedy):
            greedy.append(number)
    best = max(tried, key=value)
    kept = value(best) > run.value
    assign(model, weights.mean(best) if kept else before)
    content |= {
        "kept": kept,
        "tried": [{"members": list(some), "dev": value(some)} for some in tried],
        "best": {"members": list(best), "dev": value(best)},
        "comparison": _compared(run.dev, tried[best], metric),
    }
    if kept:
        scored = {"dev": tried[best].scores, "test": None}
        run = replace(run, dev=tried[best], test=None, scores=scored)
    return run, content


def sentence(content: Mapping[str, Any]) -> str:
    """The outcome of weight averaging, in a sentence."""
    if not content["tried"]:
        return f"nothing was averaged: there are fewer than two scored {content['of']}"
    best, single = content["best"], content["single"]["dev"]
    what = f"{content['of']} {', '.join(map(str, best['members']))}"
    scores = f"dev {content['metric']} {best['dev']:.4f}, the best alone {single:.4f}"
    if content["kept"]:
        return f"the weights are the average of {what}: {scores}"
    return f"no average was better than the best alone, which was kept; of {what}: {scores}"


def assign(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a model's parameters."""
    named = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in weights.items():
            named[name].copy_(value)


def _compared(single: Evaluation, average: Evaluation, metric: str) -> dict[str, float] | None:
    try:
        return asdict(compare(single, average, metric))
    except BertsmithError:  # too few examples for any draw to have a score
        return None
