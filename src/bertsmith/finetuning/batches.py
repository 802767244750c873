"""Micro-batches of a fine-tuning step: training items packed by tokens, sequences end to end."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import torch

from bertsmith.batch import Batch, Layout
from bertsmith.infer.run import grouped
from bertsmith.tasks.training import Sample, TrainingItem


def micro_batches(samples: Sequence[Sample], budget: int) -> Iterator[list[TrainingItem]]:
    """The items of a step in groups of at most `budget` tokens, the longest first.

    Neighbours of equal length are attended to together. A budget of 0 is none: all at once.
    """
    items = [item for sample in samples for item in sample]
    items.sort(key=lambda item: -len(item.windows[0].ids))
    return grouped(items, lambda item: item.tokens, budget or sys.maxsize)


def batch_of(items: Sequence[TrainingItem], device: torch.device) -> Batch:
    """All sequences of these items, end to end."""
    windows = [window for item in items for window in item.windows]
    ids = [window.ids for window in windows]
    return Batch.of(ids, [window.segments for window in windows]).to(device)


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
    """The same batch, with filler sequences behind it up to a multiple of `step` tokens.

    They are no longer than those before them: position tables end somewhere.
    """
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
