"""What a model learns from at once: sequences with their targets, packed into parts of a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bertsmith.batch import Batch, Layout
from bertsmith.tasks.windows import Window


@dataclass(frozen=True)
class Piece:
    """Sequences that must be seen together, what is to be learned from them, and how much."""

    windows: tuple[Window, ...]
    target: Any
    weight: float = 1.0

    @property
    def tokens(self) -> int:
        """How many tokens pass through the model."""
        return sum(len(window.ids) for window in self.windows)


Sample = tuple[Piece, ...]  # what one example of a file became


def parts(samples: Sequence[Sample], budget: int) -> Iterator[list[Piece]]:
    """The pieces of a step in groups of at most `budget` tokens, the longest first.

    Neighbours of equal length are attended to together. A budget of 0 is none: all at once.
    """
    pieces = [piece for sample in samples for piece in sample]
    pieces.sort(key=lambda piece: -len(piece.windows[0].ids))
    group: list[Piece] = []
    total = 0
    for piece in pieces:
        if group and budget and total + piece.tokens > budget:
            yield group
            group, total = [], 0
        group.append(piece)
        total += piece.tokens
    if group:
        yield group


def batch_of(pieces: Sequence[Piece], device: torch.device) -> Batch:
    """All sequences of some pieces, end to end."""
    windows = [window for piece in pieces for window in piece.windows]
    ids = [window.ids for window in windows]
    return Batch.of(ids, [window.segments for window in windows]).to(device)


def filled(batch: Batch, step: int) -> Batch:
    """The same batch, with sequences of no use behind it up to a multiple of `step` tokens.

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
