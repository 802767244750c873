"""The steps of a fine-tuning run: eager, or captured and replayed as CUDA graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith.batch import Batch, Groups, Layout
from bertsmith.examples.draw import bits
from bertsmith.finetuning.activations import CachedEncoder, checkpoint_blocks
from bertsmith.finetuning.batches import batch_of, micro_batches, padded_lengths
from bertsmith.finetuning.learner import Learner
from bertsmith.finetuning.optimizer import optimizer_for
from bertsmith.finetuning.settings import Settings
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.run import STEP
from bertsmith.tasks.training import Sample, Training, TrainingItem
from bertsmith.train.captured import CapturedStep, Inputs, StepRow
from bertsmith.train.compiling import reads_boundaries
from bertsmith.train.distributed import Ranks
from bertsmith.train.precision import Precision, supported
from bertsmith.train.schedule import Shape, rate_at
from bertsmith.train.step import MicroBatch, TrainingStep
from bertsmith.train.tables import large_tables

BUDGETS = {"cpu": 8192, "cuda": 32768}  # tokens that pass through the model at once
SHORTEST = 64  # the least bound on lengths that graphs are captured for


class Autocast(nn.Module):
    """A module whose products are computed in bfloat16 (where its weights may not be swapped)."""

    def __init__(self, inner: nn.Module, device: torch.device) -> None:
        super().__init__()
        self.inner, self.device = inner, device

    def forward(self, *inputs: Any) -> Any:
        """The output of the module inside."""
        with torch.autocast(self.device.type, torch.bfloat16):
            return self.inner(*inputs)


class Steps:
    """The steps of one run; calls return the losses that became known, NaN for skipped steps."""

    def __init__(
        self, bert: LoadedModel, training: Training, settings: Settings, total: int
    ) -> None:
        self.bert, self.training, self.settings, self.total = bert, training, settings, total
        name = supported(settings.dtype, bert.device)
        if name != settings.dtype:
            bert.ledger.note(f"trained in {name}: this device has no {settings.dtype} units")
        self.half = name != "float32"
        # oneDNN prepares again for each new number of rows in half precision.
        learner = Learner(bert.model, training, STEP if self.half and self.on_cpu else 1)
        self.tables = large_tables(bert.model)
        self.module = Precision.of(name, bert.device).wrap(learner, self.tables)
        if settings.checkpointing:
            checkpoint_blocks(bert.model)
            # What is computed again in the backward pass must find the same weights as before.
            self.module = Autocast(learner, bert.device) if self.half else learner
        self.optimizer = optimizer_for(bert.model, settings, total)
        self.cache = CachedEncoder(bert.model) if settings.freeze == "encoder" else None

    @property
    def on_cpu(self) -> bool:
        """Is the model in CPU memory?"""
        return self.bert.device.type == "cpu"

    @property
    def budget(self) -> int:
        """The number of tokens that pass through the model at once."""
        return self.settings.budget or BUDGETS.get(self.bert.device.type, 8192)

    def prepare(self, samples: Sequence[Sample]) -> None:
        """With a frozen encoder, compute the hidden states of all samples before the first step."""
        if self.cache is not None:
            self.bert.model.train()
            self.cache.fill(samples, self.budget)

    def __call__(self, samples: Sequence[Sample], number: int) -> list[float]:
        """Do one step; `number` counts from 0."""
        weight = sum(item.weight for sample in samples for item in sample)
        if not weight:
            return [*self.finish(), 0.0]  # classes that count nothing
        groups = list(micro_batches(samples, 0 if self.training.together else self.budget))
        shape = Shape(self.settings.warmup, 0.1)
        fraction = rate_at(self.settings.schedule, number / self.total, shape)
        seed = int(bits(self.settings.seed, "step", number) >> 1)
        return self.step(groups, weight, fraction, seed)

    def step(
        self, groups: list[list[TrainingItem]], weight: float, fraction: float, seed: int
    ) -> list[float]:
        """Do one step over groups of items that pass through the model one after the other."""
        raise NotImplementedError

    def finish(self) -> list[float]:
        """Wait for all steps."""
        return []

    def close(self) -> None:
        """Leave the model as it was, but for its parameters."""


class EagerSteps(Steps):
    """Steps whose loss is known at once: on a CPU, and where states are computed twice."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.training_step = TrainingStep(
            self.module,
            self.optimizer,
            Ranks.alone(self.bert.device),
            clip=self.settings.clip,
            tables=self.tables if self.on_cpu else (),  # a GPU fills a table of zeros in no time
        )

    def step(
        self, groups: list[list[TrainingItem]], weight: float, fraction: float, seed: int
    ) -> list[float]:
        """Do one step and wait for its loss."""
        self.optimizer.set_rate(fraction)
        torch.manual_seed(seed)
        result = self.training_step([self._micro_batch(group, weight) for group in groups])
        return [math.nan if result.skipped else result.loss]

    def _micro_batch(self, items: list[TrainingItem], weight: float) -> MicroBatch:
        device = self.bert.device
        targets = {name: x.to(device) for name, x in self.training.targets(items).items()}
        return MicroBatch((batch_of(items, device), targets, weight))

    def close(self) -> None:
        """Leave the embedding tables as they were."""
        self.training_step.tables.close()


class CapturedSteps(Steps):
    """Steps that a GPU replays: batches are padded up to few sizes, losses known a little late."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.captured = CapturedStep(
            self.module,
            self.optimizer,
            self.bert.device,
            clip=self.settings.clip,
            advice="train with --no-graphs (graphs=False)",
        )
        # Kernels that need lengths on the host get a grid whose size does not depend on them.
        self.gridded = not reads_boundaries(self.bert.model, self.half)

    def step(
        self, groups: list[list[TrainingItem]], weight: float, fraction: float, seed: int
    ) -> list[float]:
        """Have the GPU do one step."""
        inputs = [self.inputs(group, weight) for group in groups]
        return _losses(self.captured(inputs, fraction, seed))

    def finish(self) -> list[float]:
        """Wait for all steps."""
        return _losses(self.captured.finish())

    def inputs(self, items: list[TrainingItem], weight: float) -> Inputs:
        """A batch that is padded up with sequences of no weight, as tensors."""
        windows = [window for item in items for window in item.windows]
        lengths = [len(window.ids) for window in windows]
        exact = self.training.exact
        bound = max(SHORTEST, 1 << (max(lengths) - 1).bit_length())
        bound = min(bound, self.bert.max_length)
        more = padded_lengths(lengths, bound, exact)
        layout = Layout.of([*lengths, *more], most=bound)
        zeros = [0] * sum(more)
        ids = torch.tensor([*chain.from_iterable(window.ids for window in windows), *zeros])
        marks = torch.tensor([*chain.from_iterable(window.segments for window in windows), *zeros])
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
    return Batch(ids, marks, layout), dict(zip(names, values, strict=True)), weight, rows


def _losses(rows: list[StepRow]) -> list[float]:
    return [math.nan if row.fault else row.loss for row in rows]


def steps_for(bert: LoadedModel, training: Training, settings: Settings, total: int) -> Steps:
    """Captured on a GPU, unless activations are recomputed or the encoder's states are cached."""
    graphs = settings.graphs and not settings.checkpointing and settings.freeze != "encoder"
    captured = bert.device.type == "cuda" and graphs
    return (CapturedSteps if captured else EagerSteps)(bert, training, settings, total)
