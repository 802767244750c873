"""Samples of several corpora in exact shares."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bertsmith.corpus import Mixture
from bertsmith.examples.draw import Numbers, shuffled
from bertsmith.examples.sources import SampleSource, Sequences, ranges
from bertsmith.ledger import Ledger

FRACTION = 24  # bits of the share of a corpus: 6e-8, so small shares are exact too
MEASURED = 2**16  # samples whose mean length is that of a corpus
LEAST_BLOCK = 16


class MixturePlan(NamedTuple):
    """The corpus of each sample, and what its own source has planned for it."""

    parts: Numbers  # (N,) numbers of corpora
    groups: Numbers  # (N,) groups of samples, such as pairs
    plans: list[tuple[int, Any]]  # for each corpus that has samples
    lengths: Numbers


class MixedSource:
    """Samples of several sources whose tokens have given shares.

    Samples are divided into blocks. How many of a block come from each corpus is rounded so that
    the sums from the start are exact; their order in the block is a shuffle. So both the corpus of
    a sample and its number there are pure functions of (seed, sample), without any counting.
    Corpora with longer samples get fewer of them, since the shares are those of tokens.
    """

    def __init__(self, corpus: Mixture, sources: Sequence[SampleSource], seed: int) -> None:
        self.corpus, self.sources, self.seed, first = corpus, sources, seed, sources[0]
        self.tokenizer, self.longest, self.group = corpus.tokenizer, first.longest, first.group
        self.ledger = Ledger()
        for source in sources:
            self.ledger.counts.update(source.ledger.counts)
        rates = np.array(
            [share / mean_length(s) for s, (_, share) in zip(sources, corpus.parts, strict=True)]
        )
        rates /= rates.sum()
        self.rates = np.round(rates * 2**FRACTION).astype(np.int64)[:, None]  # (K, 1)
        self.largest = int(rates.argmax())  # gets what the others leave
        # The largest share of K is at least 1 / K: of K * K samples it has enough for rounding.
        self.block = max(LEAST_BLOCK, 1 << (len(sources) ** 2 - 1).bit_length())
        documents = [0, *(part.documents for part, _ in corpus.parts)]
        self.before = np.cumsum(documents)[:-1]  # documents of the corpora before
        epochs = [source.count / rate for source, rate in zip(sources, rates, strict=True)]
        self.count = max(1, int(min(epochs)) // self.group) * self.group

    def plan(self, samples: Numbers) -> MixturePlan:
        """Plan samples by their numbers, each by the source of its corpus."""
        groups, place = np.divmod(samples, self.group)
        parts, own = self._divided(groups)
        numbers, lengths = own * self.group + place, np.zeros(len(samples), np.int64)
        plans = []
        for part in np.unique(parts).tolist():
            plan = self.sources[part].plan(numbers[parts == part])
            lengths[parts == part] = plan.lengths
            plans.append((part, plan))
        return MixturePlan(parts, groups, plans, lengths)

    def make(self, plan: MixturePlan) -> Sequences:
        """Return the sequences in the order of their samples."""
        every = [self.sources[part].make(own) for part, own in plan.plans]
        ids, segments, lengths = (np.concatenate([own[k] for own in every]) for k in range(3))
        order = np.argsort(np.argsort(plan.parts, kind="stable"))
        lengths, starts = lengths[order], (np.cumsum(lengths) - lengths)[order]
        tokens, labels, pairs = ranges(starts, lengths), None, None
        if every[0].labels is not None:
            labels = np.concatenate([own.labels for own in every])[order]
        if every[0].pairs is not None:  # labels are documents
            labels = labels + self.before[plan.parts]
            pairs = np.concatenate([own.pairs for own in every])[order]
            pairs[:, 0] = plan.groups
        return Sequences(ids[tokens], segments[tokens], lengths, labels, pairs)

    def _divided(self, groups: Numbers) -> tuple[Numbers, Numbers]:
        """Return the corpus of each group, and its number among those of that corpus."""
        block, place = np.divmod(groups, self.block)
        place = shuffled(place, self.block, self.seed, "mixture", block)
        before = self._drawn(block * self.block)
        ends = np.cumsum(self._drawn((block + 1) * self.block) - before, axis=0)
        parts = (place >= ends).sum(0)
        starts = np.concatenate([np.zeros_like(ends[:1]), ends[:-1]])
        every = np.arange(len(groups))
        return parts, (before - starts)[parts, every] + place

    def _drawn(self, groups: Numbers) -> Numbers:
        """How many of the first groups each corpus has: (K, N)."""
        drawn = groups * self.rates >> FRACTION
        drawn[self.largest] += groups - drawn.sum(0)
        return drawn


def mean_length(source: SampleSource) -> float:
    """The mean length of a source's samples, with special tokens; of many or of whole epochs."""
    epochs = -(-MEASURED // source.count)
    samples = np.arange(source.count * epochs if epochs > 1 else MEASURED)
    return float(source.plan(samples).lengths.mean())
