"""Pre-training steps replayed as CUDA graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.examples import Example
from bertsmith.train.captured import Inputs
from bertsmith.train.compiling import reads_boundaries
from bertsmith.train.distributed import Ranks
from bertsmith.train.precision import supported
from bertsmith.train.recipe import Recipe

ROWS = 1024  # masked tokens are padded to a multiple of this: fewer shapes to capture
IGNORED = -100  # the target of rows without a loss


def can_replay(recipe: Recipe, learner: Any, ranks: Ranks) -> bool:
    """Return whether the steps of this run can be captured and replayed on one GPU."""
    train = recipe.train
    return (
        ranks.device.type == "cuda"
        and ranks.count == 1
        and train.compile
        and train.graphs
        and supported(train.precision, ranks.device) in ("bfloat16", "fp8")
        and train.optimizer in ("adamw", "muon")
        and not train.ema
        and not train.checkpointing
        and train.micro_tokens >= max(tokens for _, tokens, _ in recipe.lengths())
        and all(objective.capturable for objective in learner.objectives)
        and reads_boundaries(learner)
    )


def inputs_of(example: Example, counts: Mapping[str, float]) -> Inputs:
    """Return an example as tensors, padded to a few sizes."""
    batch, layout = example.batch, example.batch.layout
    rows, targets, filled = _padded(example)
    names = tuple(counts)
    numbers = torch.tensor([float(counts[name]) for name in names])
    total = torch.tensor(example.tokens)
    tensors = [batch.ids, batch.segments, layout.ends, layout.positions]
    tensors += [rows, targets, numbers, total]
    tensors += [] if example.judged is None else [example.judged]

    def build(tensors: list[Tensor]) -> tuple[Any, ...]:
        ids, segments, ends, positions, rows, targets, numbers, total, *judged = tensors
        on_device = replace(layout, boundaries=ends, ends=ends, positions=positions)
        padded = replace(
            example,
            batch=Batch(ids, segments, on_device),
            rows=rows,
            targets=targets,
            tokens=total,  # type: ignore[arg-type]  # known on the device: it differs by step
            filled=filled,
            judged=judged[0] if judged else None,
        )
        return padded, dict(zip(names, numbers.unbind(), strict=True))

    return Inputs(tensors, build, (layout.most, layout.full, names, filled))


def _padded(example: Example) -> tuple[Tensor, Tensor, int | None]:
    """Pad masked tokens to a few sizes: those that a generator fills, and the others."""
    cuts = [0, *([] if example.filled is None else [example.filled]), len(example.rows)]
    rows, targets = [], []
    for first, last in pairwise(cuts):
        spare = -(-max(1, last - first) // ROWS) * ROWS - (last - first)
        rows += [example.rows[first:last], torch.zeros(spare, dtype=torch.int64)]
        targets += [example.targets[first:last], torch.full((spare,), IGNORED)]
    filled = None if example.filled is None else len(rows[0]) + len(rows[1])
    return torch.cat(rows), torch.cat(targets), filled
