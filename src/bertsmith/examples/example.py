"""Examples: the samples of a step, and their batches."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from bertsmith.batch import Batch, Layout
from bertsmith.examples.division import divide
from bertsmith.examples.draw import Numbers
from bertsmith.examples.masking import Masking
from bertsmith.examples.sources import MixturePlan, SampleSource, Sequences


@dataclass(frozen=True)
class Example:
    """A batch with its targets.

    The last sequence may be padding that fills the batch to a round number of tokens; it is not a
    sample and has no targets.
    """

    batch: Batch
    rows: Tensor  # (M,) int64: positions of masked tokens
    targets: Tensor  # (M,) int64: their original ids
    labels: Tensor | None  # (N,) int64: labels of pairs; of crops, their document
    samples: int  # N
    tokens: int  # tokens of samples, without padding
    # With a generator that fills only some sequences: the first `filled` rows are theirs, and
    # `judged` (T,) bool marks all their tokens. None: it fills all.
    filled: int | None = None
    judged: Tensor | None = None
    pairs: Tensor | None = None  # (N, 2) int64: of crops, the pair and a digest of the text

    def to(self, device: torch.device | str) -> Self:
        """Return the example on another device."""
        move = partial(Tensor.to, device=device, non_blocking=True)
        return self._moved(self.batch.to(device), move)

    def pinned(self) -> Self:
        """Return the example in pinned memory."""
        return self._moved(self.batch.pinned(), Tensor.pin_memory)

    def _moved(self, batch: Batch, move: Callable[[Tensor], Tensor]) -> Self:
        tensors: Any = {n: move(x) for n, x in vars(self).items() if isinstance(x, Tensor)}
        return replace(self, batch=batch, **tensors)

    def partly_filled(self, fills: float) -> Self:
        """Return the example with a generator that fills only this fraction of the sequences.

        They alternate with those that stay masked, so that both have sequences of all lengths.
        """
        if fills == 1:
            return self
        owner = self.batch.layout.owner
        numbers = torch.arange(int(owner[-1]) + 2, dtype=torch.float64)
        judged = ((numbers * fills).floor().diff() > 0)[owner]
        judged[self.tokens :] = False
        mine = judged[self.rows]
        order = (~mine).to(torch.uint8).argsort(stable=True)
        rows, targets = self.rows[order], self.targets[order]
        return replace(self, rows=rows, targets=targets, filled=int(mine.sum()), judged=judged)


class StepPlan(NamedTuple):
    """A step: samples from `position` to `end`, divided over ranks and micro-batches."""

    position: int
    end: int
    micro_batches: list[list[Any]]  # rank → its micro-batches → sample numbers, or items
    useful: float  # share of the ranks' work that is spent on samples
    corpora: tuple[int, ...] = ()  # of a mixture: tokens from each corpus

    @property
    def samples(self) -> Numbers:
        """The numbers of all samples."""
        return np.arange(self.position, self.end)


class Examples:
    """Masked samples of a source.

    `segments` is the number of segments in the model's table, `fills` the fraction of sequences
    whose masks a generator fills.
    """

    def __init__(
        self, source: SampleSource, masking: Masking | None, segments: int = 2, fills: float = 1.0
    ) -> None:
        self.source, self.masking, self.segments, self.fills = source, masking, segments, fills

    def plan(
        self, position: int, *, tokens: int, micro_tokens: int, ranks: int = 1, fill: int = 1
    ) -> StepPlan:
        """Return the samples of the step that starts at a position: as many as fit into `tokens`.

        The samples do not depend on the number of ranks, and their division depends on the
        arguments alone: every rank computes the same plan.
        """
        size = self.source.group
        lengths, corpora = self._lengths(position, tokens)
        groups = lengths.reshape(-1, size).sum(1)
        count = max(1, int(np.searchsorted(np.cumsum(groups), tokens, side="right")))
        shares, useful = divide(groups[:count], ranks=ranks, micro_tokens=micro_tokens, fill=fill)

        def samples(part: Numbers) -> Numbers:
            return np.add.outer(position + size * part, np.arange(size)).ravel()

        numbered = [[samples(part) for part in share] for share in shares]
        drawn = slice(size * count)
        read = np.bincount(corpora[drawn], lengths[drawn]).astype(int) if len(corpora) else ()
        return StepPlan(position, position + size * count, numbered, useful, tuple(map(int, read)))

    def _lengths(self, position: int, tokens: int) -> tuple[Numbers, Numbers]:
        """Lengths of enough samples to fill so many tokens; of a mixture, their corpora too."""
        lengths: list[Numbers] = []
        corpora: list[Numbers] = []
        total, ahead = 0, max(16, 2 * tokens // self.source.longest)
        ahead += -ahead % self.source.group
        while total <= tokens:
            plan = self.source.plan(np.arange(position, position + ahead))
            lengths.append(plan.lengths)
            corpora.append(plan.corpora if isinstance(plan, MixturePlan) else np.zeros(0, np.int64))
            total += int(plan.lengths.sum())
            position += ahead
        return np.concatenate(lengths), np.concatenate(corpora)

    def sequences(self, samples: Numbers) -> Sequences:
        """Return the samples of these numbers as tokens, without masks."""
        texts = self.source.make(self.source.plan(samples))
        return texts._replace(segments=np.minimum(texts.segments, max(self.segments - 1, 0)))

    def make(self, samples: Numbers, fill: int = 1) -> Example:
        """Return the batch of a micro-batch, padded to a multiple of `fill` tokens."""
        lengths = self.source.plan(samples).lengths  # neighbours of equal length share a call
        samples = samples[np.argsort(-lengths, kind="stable")]
        sequences = self.sequences(samples)
        nothing = np.zeros(0, dtype=np.int64)
        seen, rows, targets = sequences.ids, nothing, nothing
        if self.masking is not None:
            seen, rows, targets = self.masking(sequences, samples)
        sizes, total = sequences.lengths.tolist(), len(seen)
        segments = sequences.segments
        spare = -total % fill
        if spare:
            # Padding sequences respect the maximum length, as position tables require.
            longest = self.source.longest
            sizes += [longest] * (spare // longest) + [spare % longest] * (spare % longest > 0)
            seen = np.concatenate([seen, np.full(spare, self.source.tokenizer.pad_id or 0)])
            segments = np.concatenate([segments, np.zeros(spare, dtype=np.int64)])
        tensor, given = torch.from_numpy, (sequences.labels, sequences.pairs)
        layout = Layout.of(sizes, most=self.source.longest)
        batch = Batch(tensor(seen), tensor(segments), layout)
        labels, pairs = (None if array is None else tensor(array) for array in given)
        masked = tensor(rows), tensor(targets), labels
        example = Example(batch, *masked, samples=len(samples), tokens=total, pairs=pairs)
        return example.partly_filled(self.fills)
