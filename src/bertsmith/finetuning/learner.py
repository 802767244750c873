"""A model and the training of its task as one module: from a batch to its loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertsmith.batch import Batch, Groups, Layout, end_to_end
from bertsmith.finetuning.batches import TaskBatch, filled, padded_lengths, passes_of
from bertsmith.infer.loaded import LoadedModel
from bertsmith.model import Model
from bertsmith.tasks.training import Training, TrainingItem
from bertsmith.train.captured import Inputs
from bertsmith.train.compiling import reads_boundaries
from bertsmith.train.distributed import GatherRows

SHORT = 128  # tokens
SHORTEST = 64  # the least bound on lengths that graphs are captured for


class TaskLoss(nn.Module):
    """A model with the loss of its task.

    Batches are filled up to a multiple of `step` tokens, for kernels that want few sizes. Batches
    of more than `cached` tokens pass in parts (0: never). The gradients of a loss over all outputs
    are cached (GradCache, Gao et al. 2021): a first pass computes the outputs without a graph; in
    the backward pass each part is computed again, so that only one graph is in memory.
    """

    objectives = ()

    def __init__(self, model: Model, training: Training, step: int = 1, cached: int = 0) -> None:
        super().__init__()
        self.model, self.training_task, self.step, self.cached = model, training, step, cached
        self.leaves_unused = training.head is None  # such as a pooler

    def counts(self, example: TaskBatch) -> Counter[str]:
        """Nothing: batches have the weight of their step."""
        return Counter()

    def forward(
        self, example: TaskBatch, counts: Mapping[str, float]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum of losses over the weight of all items of a step, computed in float32."""
        batch, task = example.batch, self.training_task
        self.model.use_kernel(_kernel(batch))
        if 0 < self.cached < batch.layout.total:
            parts = passes_of(batch, self.cached)
            outputs = torch.cat([checkpoint(self._pass, one, use_reentrant=False) for one in parts])
        else:
            outputs = self._pass(batch)
        outputs, ranks = outputs[: example.rows or len(outputs)], 1
        if example.shares:
            own, ranks = outputs[: example.shares[example.rank]], len(example.shares)
            outputs = GatherRows.apply(own, example.shares, example.rank)  # type: ignore[no-untyped-call]
        return task.loss(outputs, batch, example.targets) / (example.weight * ranks), {}

    def _pass(self, batch: Batch) -> Tensor:
        """The outputs of a batch in float32, without those of filler sequences."""
        task = self.training_task
        real = batch.layout.total if task.each_token else len(batch.layout.lengths)
        return task.outputs(self.model, filled(batch, self.step))[:real].float()


def _kernel(batch: Batch) -> str | None:
    """On a CPU short sequences are padded a little: few large calls beat many small ones.

    Captured steps that come with a padded grid use it.
    """
    short = batch.layout.longest <= SHORT and batch.ids.device.type == "cpu"
    return "grouped" if short or batch.layout.padded is not None else None


class PaddedInputs:
    """Batches as tensors of few sizes, for steps that a GPU replays.

    They are padded with sequences of no weight. Kernels that need lengths on the host get a grid
    whose size does not depend on them.
    """

    def __init__(self, bert: LoadedModel, training: Training, half: bool) -> None:
        self.bert, self.training = bert, training
        self.gridded = not reads_boundaries(bert.model, half)

    def __call__(self, items: Sequence[TrainingItem], weight: float) -> Inputs:
        """The tensors of a pass."""
        windows = [window for item in items for window in item.windows]
        lengths = [len(window.ids) for window in windows]
        exact = self.training.exact
        bound = max(SHORTEST, 1 << (max(lengths) - 1).bit_length())
        bound = min(bound, self.bert.max_length)
        more = padded_lengths(lengths, bound, exact)
        layout = Layout.of([*lengths, *more], most=bound)
        ids = end_to_end((window.ids for window in windows), sum(more))
        marks = end_to_end((window.segments for window in windows), sum(more))
        targets, rows = self.training.targets(items), len(lengths) if exact else 0
        if not exact:
            targets = self.training.padded(targets, len(layout.lengths), layout.total)
        tensors = [ids, marks, layout.boundaries, layout.ends, layout.positions]
        tensors += [torch.tensor(weight), *targets.values()]
        if self.gridded:
            (seen,), picked, places = layout.grid
            tensors += [seen, picked, places]
        build = partial(_built, layout.lengths, layout.most, tuple(targets), rows)
        return Inputs(tensors, build, (layout.most, tuple(targets), rows))


def _built(
    lengths: tuple[int, ...], most: int, names: tuple[str, ...], rows: int, tensors: list[Tensor]
) -> tuple[Any, ...]:
    """The arguments of the learner, from their tensors on the device."""
    ids, marks, boundaries, ends, positions, weight, *rest = tensors
    values, grid = rest[: len(names)], rest[len(names) :]
    padded = Groups(grid[:1], *grid[1:]) if grid else None
    layout = Layout(boundaries, ends, positions, lengths, most, padded)
    targets = dict(zip(names, values, strict=True))
    return TaskBatch(Batch(ids, marks, layout), targets, weight, sum(lengths), rows), {}
