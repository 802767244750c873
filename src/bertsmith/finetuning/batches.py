"""The steps of a fine-tuning run: epochs of samples, packed by tokens, sequences end to end."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertsmith.batch import Batch, Groups, Layout, end_to_end
from bertsmith.examples.division import balance, divide
from bertsmith.examples.draw import shuffled
from bertsmith.examples.example import StepPlan
from bertsmith.finetuning.settings import RunSettings
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.run import grouped
from bertsmith.model import Model
from bertsmith.tasks.training import Sample, Targets, Training, TrainingItem
from bertsmith.train.captured import Inputs
from bertsmith.train.compiling import reads_boundaries
from bertsmith.train.distributed import GatherRows

AHEAD = 64  # batches that are tried for a sample, one of whose texts a batch has already
SHORT = 128  # tokens of sequences that a CPU pads a little
SHORTEST = 64  # the least bound on lengths that graphs are captured for


@dataclass(frozen=True)
class TaskBatch:
    """Items of a step as a batch, with their targets and the weight of all items of the step."""

    batch: Batch
    targets: Targets
    weight: float | Tensor
    tokens: int
    rows: int = 0  # outputs that have targets, if not all have
    outputs_of_ranks: tuple[int, ...] = ()  # their numbers, where all items learn together
    rank: int = 0

    def to(self, device: torch.device) -> TaskBatch:
        """The same on another device."""
        targets = {name: x.to(device, non_blocking=True) for name, x in self.targets.items()}
        return replace(self, batch=self.batch.to(device), targets=targets)

    def pinned(self) -> TaskBatch:
        """The same in pinned memory."""
        targets = {name: x.pin_memory() for name, x in self.targets.items()}
        return replace(self, batch=self.batch.pinned(), targets=targets)


class PaddedBatch(NamedTuple):
    """Items of a step as tensors of few sizes, for a step that a GPU replays."""

    inputs: Inputs
    tokens: int


@dataclass(frozen=True)
class PlannedBatch:
    """Items that pass through the model at once; their weight is that of the whole step."""

    items: Sequence[TrainingItem]
    weight: float
    groups: Sequence[Sequence[TrainingItem]] = ()  # of every rank, where all learn together
    rank: int = 0

    def __len__(self) -> int:
        return len(self.items)


class Epochs:
    """Every sample once an epoch, in an order that is a function of the seed."""

    def __init__(
        self,
        training: Training,
        samples: Sequence[Sample],
        settings: RunSettings,
        budget: int,
        *,
        name: str = "epoch",
        captured: Callable[[Sequence[TrainingItem], float], Inputs] | None = None,
    ) -> None:
        self.training, self.samples, self.settings = training, samples, settings
        self.budget, self.name, self.captured = budget, name, captured
        self.each = -(-len(samples) // settings.batch_size)  # steps of an epoch
        self.batches: dict[int, list[list[Sample]]] = {}  # of the last epochs

    def plan(self, position: int, ranks: int) -> StepPlan:
        """The items of a step, divided over ranks; a step whose items weigh nothing has none."""
        epoch, number = divmod(position, self.each)
        if epoch not in self.batches:
            batches = shuffled_batches(
                self.training, self.samples, self.settings, self.name, epoch + 1
            )
            self.batches = {**dict(list(self.batches.items())[-1:]), epoch: batches}
        samples = self.batches[epoch][number]
        weight = sum(item.weight for sample in samples for item in sample)
        shares, useful = self._divided(samples, ranks) if weight else ([[]] * ranks, 1.0)
        groups: list[list[TrainingItem]] = []
        if self.training.together and ranks > 1:  # a rank without items computes one for nothing
            groups = [group for share in shares for group in share]
            shares = [[group or groups[0][:1] for group in share] for share in shares]
        planned = [
            [PlannedBatch(group, weight, groups, rank) for group in share]
            for rank, share in enumerate(shares)
        ]
        return StepPlan(position, position + 1, planned, useful)

    def _divided(
        self, samples: Sequence[Sample], ranks: int
    ) -> tuple[list[list[list[TrainingItem]]], float]:
        """Rank → groups of items; and the share of the ranks' work that is useful."""
        if ranks == 1:
            budget = 0 if self.training.together else self.budget
            return [list(micro_batches(samples, budget))], 1.0
        items = longest_first(samples)
        lengths = np.array([item.tokens for item in items])
        if self.training.together:
            shares = [[one] for one in balance(lengths, ranks)]
            most = max(int(lengths[one].sum()) for (one,) in shares)
            useful = float(lengths.sum()) / (ranks * most)
        else:
            shares, useful = divide(lengths, ranks=ranks, micro_tokens=self.budget)
        return [[[items[n] for n in group] for group in share] for share in shares], useful

    def spare(self, plan: StepPlan) -> PlannedBatch:
        """One item of the step, for ranks that have none."""
        longest = max((one for share in plan.micro_batches for one in share), key=len)
        return replace(longest, items=longest.items[:1])

    def make(self, planned: PlannedBatch) -> TaskBatch | PaddedBatch:
        """The batch of some items, with their targets."""
        items, weight = planned.items, planned.weight
        tokens = sum(item.tokens for item in items)
        if self.captured is not None:
            return PaddedBatch(self.captured(items, weight), tokens)
        batch = batch_of(items)
        counts = tuple(sum(len(item.windows) for item in group) for group in planned.groups)
        targets = self.training.targets(list(chain.from_iterable(planned.groups)) or items)
        ranks: Any = {"outputs_of_ranks": counts, "rank": planned.rank}
        return TaskBatch(batch, targets, weight, tokens, **ranks)


def shuffled_batches(
    training: Training, samples: Sequence[Sample], settings: RunSettings, name: str, epoch: int
) -> list[list[Sample]]:
    """The samples of an epoch, shuffled by the seed, if possible no shared keys in a batch."""
    order = shuffled(np.arange(len(samples)), len(samples), settings.seed, name, epoch)
    size = settings.batch_size
    batches: list[list[Sample]] = [[] for _ in range(-(-len(samples) // size))]
    room = [min(size, len(samples) - size * number) for number in range(len(batches))]
    seen: list[set[int]] = [set() for _ in batches]
    first = 0  # that is not full
    for sample in (samples[place] for place in order):
        keys = training.keys(sample)
        ahead = range(first, min(first + AHEAD, len(batches)))
        chosen = next((n for n in ahead if room[n] and seen[n].isdisjoint(keys)), first)
        batches[chosen].append(sample)
        seen[chosen].update(keys)
        room[chosen] -= 1
        while first < len(batches) and not room[first]:
            first += 1
    return batches


def longest_first(samples: Sequence[Sample]) -> list[TrainingItem]:
    """All items of samples, the longest first."""
    items = [item for sample in samples for item in sample]
    return sorted(items, key=lambda item: -len(item.windows[0].ids))


def micro_batches(samples: Sequence[Sample], budget: int) -> Iterator[list[TrainingItem]]:
    """The items of a step in groups of at most `budget` tokens, the longest first.

    Neighbours of equal length are attended to together. A budget of 0 is none: all at once.
    """
    return grouped(longest_first(samples), lambda item: item.tokens, budget or sys.maxsize)


def batch_of(items: Sequence[TrainingItem]) -> Batch:
    """All sequences of these items, end to end."""
    windows = [window for item in items for window in item.windows]
    ids = [window.ids for window in windows]
    return Batch.of(ids, [window.segments for window in windows])


def passes_of(batch: Batch, budget: int) -> Iterator[Batch]:
    """The sequences of a batch in batches of at most `budget` tokens, in the same order."""
    start = 0
    for lengths in grouped(batch.layout.lengths, int, budget):
        rows = slice(start, start + sum(lengths))
        layout = Layout.of(lengths).to(batch.ids.device)
        yield Batch(batch.ids[rows], batch.segments[rows], layout)
        start = rows.stop


def padded_lengths(lengths: Sequence[int], longest: int, exact: bool = False) -> list[int]:
    """The lengths of filler sequences that bring batches to few different sizes.

    Together with them the number of tokens is a multiple of 64 or of an eighth of a power of two;
    unless `exact`, the number of sequences is a multiple of 8. At least one is added, and none is
    empty or longer than `longest`.
    """
    count, total, step = len(lengths), sum(lengths), 1 if exact else 8
    more = 1 if exact else step - count % step
    while True:
        round_to = max(64, 1 << max(0, (total + more).bit_length() - 4))
        spare = -(-(total + more) // round_to) * round_to - total
        if spare <= more * longest:
            return [spare // more + (number < spare % more) for number in range(more)]
        more += step


def filled(batch: Batch, step: int) -> Batch:
    """The batch with short filler sequences behind it, up to a multiple of `step` tokens."""
    spare = -batch.layout.total % step
    if not spare:
        return batch
    longest = batch.layout.longest
    more = [longest] * (spare // longest) + [spare % longest] * (spare % longest > 0)
    return Batch(
        torch.cat([batch.ids, batch.ids.new_zeros(spare)]),
        torch.cat([batch.segments, batch.segments.new_zeros(spare)]),
        Layout.of([*batch.layout.lengths, *more]).to(batch.ids.device),
    )


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
            passes = passes_of(batch, self.cached)
            outputs = torch.cat([checkpoint(self._pass, p, use_reentrant=False) for p in passes])
        else:
            outputs = self._pass(batch)
        outputs, counts_of = outputs[: example.rows or len(outputs)], example.outputs_of_ranks
        if counts_of:
            own = outputs[: counts_of[example.rank]]
            outputs = GatherRows.apply(own, counts_of, example.rank)  # type: ignore[no-untyped-call]
        ranks = len(counts_of) or 1
        return task.loss(outputs, batch, example.targets) / (example.weight * ranks), {}

    def _pass(self, batch: Batch) -> Tensor:
        """The outputs of a batch in float32, without those of filler sequences."""
        task = self.training_task
        real = batch.layout.total if task.each_token else len(batch.layout.lengths)
        return task.outputs(self.model, filled(batch, self.step))[:real].float()


def _kernel(batch: Batch) -> str | None:
    """On a CPU short sequences are padded a little: few large calls are faster than many small."""
    short = batch.layout.longest <= SHORT and batch.ids.device.type == "cpu"
    return "grouped" if short or batch.layout.padded is not None else None


class PaddedInputs:
    """Batches as tensors of few sizes, padded with sequences of no weight, for replayed steps.

    Kernels that need lengths on the host get a grid whose size does not depend on them.
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
    ids, marks, boundaries, ends, positions, weight, *rest = tensors
    values, grid = rest[: len(names)], rest[len(names) :]
    padded = Groups(grid[:1], *grid[1:]) if grid else None
    layout = Layout(boundaries, ends, positions, lengths, most, padded)
    targets = dict(zip(names, values, strict=True))
    return TaskBatch(Batch(ids, marks, layout), targets, weight, sum(lengths), rows), {}
