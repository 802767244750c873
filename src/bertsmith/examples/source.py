"""The interface of a source of samples, and sequences with special tokens."""

from typing import Any, NamedTuple, Protocol

import numpy as np

from bertsmith.corpus import Corpus, Mixture
from bertsmith.errors import BertsmithError
from bertsmith.examples.draw import Numbers, shuffled
from bertsmith.ledger import Ledger
from bertsmith.tokenizer import Tokenizer


class UnfitCorpusError(BertsmithError):
    """A corpus from which no sample of the requested kind can be made."""


class Sequences(NamedTuple):
    """Samples as tokens, concatenated."""

    ids: Numbers  # (T,) int64
    segments: Numbers  # (T,) int64
    lengths: Numbers  # (N,) int64
    labels: Numbers | None = None  # (N,) int64: labels of pairs; of crops, their document
    pairs: Numbers | None = None  # (N, 2) int64: of crops, the pair and a digest of the text


class SampleSource(Protocol):
    """A source of samples. A plan describes what each sample contains; all its arrays are (N,)."""

    tokenizer: Tokenizer
    count: int  # samples in an epoch
    group: int  # samples of such a group, counted from 0, share a micro-batch
    longest: int  # the most tokens in a sample
    ledger: Ledger  # parts of the corpus that are never used, and why

    @property
    def corpus(self) -> Corpus | Mixture:
        """Where the text comes from."""

    def plan(self, samples: Numbers) -> Any:
        """Return the plan of samples by their numbers; it has `lengths`."""

    def make(self, plan: Any) -> Sequences:
        """Return the sequences of a plan."""


class CorpusSource:
    """Base class of the sources of one corpus: its text, and the special tokens around it."""

    group = 1

    def __init__(self, corpus: Corpus, length: int, seed: int, pair: bool = False) -> None:
        self.corpus, self.tokenizer, self.longest = corpus, corpus.tokenizer, length
        self.seed, self.ledger = seed, Ledger()
        self.slots = corpus.tokenizer.template(pair)
        self.extra = sum(slot.source is None for slot in self.slots)  # special tokens
        self.room = length - self.extra  # tokens of text
        if self.room < 2:
            raise BertsmithError(
                f"a length of {length} leaves no room for text: {self.extra} are special tokens"
            )

    def demand_text(self, fine: bool, what: str) -> None:
        """Raise an error if no sample can be made from the corpus."""
        if not fine:
            raise UnfitCorpusError(f"{self.corpus.directory}: {what}")

    def place_in_epoch(self, samples: Numbers, count: int) -> Numbers:
        """Return the item of each sample: every epoch is a new shuffle of `count` items."""
        return shuffled(samples % count, count, self.seed, "epoch", samples // count)

    def document_bounds(self, document: Numbers) -> tuple[Numbers, Numbers]:
        """The first token of documents, and one past the last."""
        starts = self.corpus.document_starts
        return starts[document], starts[document + 1]

    def sentence_of(self, token: Numbers) -> Numbers:
        """The number of the sentence that a token is in."""
        return np.searchsorted(self.corpus.sentence_starts, token, "right") - 1

    def fill(self, texts: list[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers, Numbers]:
        """Put special tokens around texts, each as (concatenated tokens, length in each sample).

        Returns ids, segments and the lengths of whole sequences.
        """
        lengths = sum((part for _, part in texts), np.full(len(texts[0][1]), self.extra))
        ends = np.cumsum(lengths)
        at = ends - lengths  # where the next slot of each sequence begins
        ids = np.full(int(ends[-1]), -1, dtype=np.int64)  # not a token: exposes gaps
        segments = np.zeros_like(ids)
        for source, number, segment in self.slots:
            if source is None:
                ids[at], segments[at] = number, segment
                at = at + 1
            else:
                tokens, part = texts[source]
                where = ranges(at, part)
                ids[where], segments[where] = tokens, segment
                at = at + part
        return ids, segments, lengths


def ranges(starts: Numbers, lengths: Numbers) -> Numbers:
    """Return all numbers of many ranges [start, start + length), concatenated."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
