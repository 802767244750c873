"""Layout and Batch: sequences end to end, the interface between data and model.

Sequences lie end to end in one row of T tokens: no padding, no batch axis. Boundaries are
made on the CPU, so that a model on a device never waits to learn where a sequence ends.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, repeat
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor


class Groups(NamedTuple):
    """Padded grids of sequences, concatenated to R rows; padding repeats the last token."""

    seen: list[Tensor]  # of each grid (c, n), where its tokens are real
    picked: Tensor  # (R,) which token stands in each row
    places: Tensor  # (T,) the row of each token

    @property
    def sizes(self) -> list[int]:
        """The rows of each grid."""
        return [grid.numel() for grid in self.seen]


@dataclass(frozen=True)
class Layout:
    """The position of each of N sequences in a row of T tokens."""

    boundaries: Tensor  # (N+1,) int32: sequence n is rows boundaries[n] to boundaries[n+1]
    ends: Tensor  # boundaries; if `most` is known, with empty sequences up to a power of two
    positions: Tensor  # (T,) int64: each token's place in its own sequence, from 0
    lengths: tuple[int, ...]  # of the sequences, as numbers for choices made on the CPU
    most: int = 0  # upper bound of the lengths in all batches of this kind; 0: unknown
    padded: Groups | None = None  # grids to use instead of computing `groups`
    full: bool = False  # all sequences have `most` tokens

    @classmethod
    def of(cls, lengths: Sequence[int], most: int = 0) -> Self:
        """Sequences of these lengths, end to end; with `most`, `ends` has only few sizes."""
        if not lengths or min(lengths) < 1:
            raise ValueError("a layout needs at least one sequence, and none may be empty")
        if most and max(lengths) > most:
            raise ValueError(f"a sequence of {max(lengths)} tokens, where {most} is the most")
        counts = np.asarray(lengths)  # numpy: a call takes a fraction of the time of torch's
        boundaries = np.concatenate([[0], counts.cumsum()])
        positions = torch.from_numpy(np.arange(boundaries[-1]) - boundaries[:-1].repeat(counts))
        small = torch.from_numpy(boundaries.astype(np.int32))
        spare = (1 << (len(lengths) - 1).bit_length()) - len(lengths) if most else 0
        shared = torch.cat([small, small[-1:].expand(spare)]) if spare else small
        return cls(small, shared, positions, tuple(lengths), most, full=min(lengths) == most)

    @property
    def longest(self) -> int:
        """The length of the longest sequence, or an upper bound of it."""
        return self.most or max(self.lengths)

    @property
    def total(self) -> int:
        """T, the number of tokens."""
        return sum(self.lengths)

    @property
    def first(self) -> Tensor:
        """The row of each sequence's first token (N,)."""
        return self.boundaries[:-1].long()

    @property
    def owner(self) -> Tensor:
        """The sequence each token belongs to (T,)."""
        return (self.positions == 0).cumsum(0) - 1

    @cached_property
    def runs(self) -> tuple[tuple[int, int, int], ...]:
        """Runs of sequences of equal length as (first row, count, length)."""
        runs, row = [], 0
        for length, group in groupby(self.lengths):
            count = sum(1 for _ in group)
            runs.append((row, count, length))
            row += count * length
        return tuple(runs)

    @cached_property
    def groups(self) -> Groups:
        """Sequences of similar length as padded grids, for kernels with a high cost per call."""
        if self.padded is not None:
            return self.padded
        return self._grids(like(self.lengths))

    @property
    def grid(self) -> Groups:
        """All sequences as one grid (N, longest), whose size does not depend on the lengths."""
        return self._grids([list(range(len(self.lengths)))], self.longest)

    def _grids(self, groups: list[list[int]], width: int = 0) -> Groups:
        """A grid for each group of sequences, by default as wide as the longest of them."""
        starts = self.boundaries[:-1].long().cpu()
        seen, picked, places = [], [], torch.empty(self.total, dtype=torch.int64)
        filled = 0
        for members in groups:
            lengths = torch.tensor([self.lengths[number] for number in members])
            across = torch.arange(width or int(lengths.max()))
            real = across < lengths[:, None]
            rows = starts[members, None] + torch.minimum(across, lengths[:, None] - 1)
            places[rows[real]] = filled + real.flatten().nonzero().flatten()
            filled += rows.numel()
            seen.append(real.to(self.positions.device))
            picked.append(rows.flatten())
        device = self.positions.device
        return Groups(seen, torch.cat(picked).to(device), places.to(device))

    def split(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Split (T, ...) into one (length, ...) tensor for each sequence."""
        return rows.split(list(self.lengths))

    def to(self, device: torch.device | str) -> Self:
        """The same layout with its tensors on another device."""
        return self.moved(lambda tensor: tensor.to(device, non_blocking=True))

    def moved(self, move: Callable[[Tensor], Tensor]) -> Self:
        """The same layout with `move` applied to its tensors."""
        boundaries = move(self.boundaries)
        same = self.ends is self.boundaries
        ends = boundaries if same else move(self.ends)
        tensors: Any = {"boundaries": boundaries, "ends": ends, "positions": move(self.positions)}
        if self.padded is None:
            return replace(self, **tensors)
        seen = [move(grid) for grid in self.padded.seen]
        padded = Groups(seen, move(self.padded.picked), move(self.padded.places))
        return replace(self, padded=padded, **tensors)


def like(lengths: Sequence[int], most: int = 16384, enough: int = 16384) -> list[list[int]]:
    """Group sequences of similar length.

    At most a fifth of a group is padding, and a group has at most `most` tokens. No longer
    sequence joins a group that has `enough` tokens.
    """
    groups: list[list[int]] = []
    real = 0
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        length = lengths[number]
        padded = length * (len(groups[-1]) + 1) if groups else 0
        real += length
        full = groups and length > lengths[groups[-1][-1]] and real - length >= enough
        if not groups or full or padded > most or real < 0.8 * padded:
            groups.append([])
            real = length
        groups[-1].append(number)
    return groups


@dataclass(frozen=True)
class Batch:
    """Token ids and segment ids of N sequences, with their layout."""

    ids: Tensor  # (T,) int64
    segments: Tensor  # (T,) int64
    layout: Layout

    @classmethod
    def of(
        cls, ids: Sequence[Sequence[int]], segments: Sequence[Sequence[int]] | None = None
    ) -> Self:
        """Pack lists of ids (and of segment ids, else all 0) end to end."""
        layout = Layout.of([len(sequence) for sequence in ids])
        flat = end_to_end(ids)
        if segments is None:
            return cls(flat, torch.zeros_like(flat), layout)
        if [len(sequence) for sequence in segments] != list(layout.lengths):
            raise ValueError("ids and segments differ in length")
        return cls(flat, end_to_end(segments), layout)

    def to(self, device: torch.device | str) -> Self:
        """The same batch on another device."""
        if self.ids.device == torch.device(device):
            return self
        return self._moved(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> Self:
        """The same batch in pinned memory, from which a GPU copies without waiting."""
        return self._moved(Tensor.pin_memory)

    def _moved(self, move: Callable[[Tensor], Tensor]) -> Self:
        layout = self.layout.moved(move)
        return replace(self, ids=move(self.ids), segments=move(self.segments), layout=layout)


def end_to_end(sequences: Iterable[Sequence[int]], zeros: int = 0) -> Tensor:
    """Sequences of numbers as one row (T,) int64, and so many zeros behind them."""
    row = array("q")  # many times as fast as torch.tensor of a list
    for sequence in sequences:
        row.extend(sequence)
    row.extend(repeat(0, zeros))
    return torch.frombuffer(row, dtype=torch.int64) if row else torch.empty(0, dtype=torch.int64)
