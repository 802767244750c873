"""Spans of running text, up to the maximum length."""

from typing import NamedTuple

import numpy as np

from bertsmith.corpus import Corpus
from bertsmith.examples.draw import Numbers
from bertsmith.examples.source import CorpusSource, Sequences, ranges


class SpanPlan(NamedTuple):
    """The start of each span, and the length of its sequence."""

    starts: Numbers
    lengths: Numbers


class Spans(CorpusSource):
    """Spans of full length; an epoch reads every token once.

    A document is cut into spans of the full length; the last two share the rest, so that neither is
    very short. Documents are not mixed: a short document is a short sequence. With `joined`, spans
    continue from one document into the next with a separator between them, as in RoBERTa; then
    every sequence but the last is full.
    """

    def __init__(self, corpus: Corpus, *, length: int, seed: int = 0, joined: bool = False) -> None:
        super().__init__(corpus, length, seed)
        self.joined = joined
        self.demand_text(corpus.tokens > 0, "there is no text in it")
        if joined:
            self.total = corpus.tokens + corpus.documents  # each document and its separator
            self.count = -(-self.total // self.room)
            # A document's separator counts as its last token: document d begins d tokens later.
            self.begins = corpus.document_starts[:-1] + np.arange(corpus.documents)
        else:
            sizes = np.diff(corpus.document_starts)
            self.ends = np.cumsum(-(-sizes // self.room))  # spans up to the end of each document
            self.count = int(self.ends[-1])

    def plan(self, samples: Numbers) -> SpanPlan:
        """Return the start of each span; for joined spans, in the row with separators."""
        place = self.place_in_epoch(samples, self.count)
        if self.joined:
            starts = place * self.room
            sizes = np.minimum(self.room, self.total - starts)
            return SpanPlan(starts, sizes + self.extra)
        document = np.searchsorted(self.ends, place, side="right")
        first, last = self.document_bounds(document)
        count = -(-(last - first) // self.room)
        number = place - (self.ends[document] - count)
        begin, end = (self._bound(number + k, count, last - first) for k in (0, 1))
        return SpanPlan(first + begin, end - begin + self.extra)

    def _bound(self, number: Numbers, count: Numbers, size: Numbers) -> Numbers:
        """Where a span of a document begins; the last two share the rest evenly."""
        shared = -(-(size + (count - 2) * self.room) // 2)
        last = np.where(number == count, size, shared)
        return np.where((number < count - 1) | (number == 0), number * self.room, last)

    def make(self, plan: SpanPlan) -> Sequences:
        """Return the spans with special tokens."""
        sizes = plan.lengths - self.extra
        read = self._joined if self.joined else self.corpus.gather
        return Sequences(*self.fill([(read(plan.starts, sizes), sizes)]))

    def _joined(self, starts: Numbers, sizes: Numbers) -> Numbers:
        """Text with a separator where a document ends."""
        place = ranges(starts, sizes)
        document = np.searchsorted(self.begins, place, "right") - 1
        token = place - document
        inside = token < self.corpus.document_starts[document + 1]
        ids = np.full(len(place), self.tokenizer.sep_id, dtype=np.int64)
        ids[inside] = self.corpus.gather(token[inside], np.ones(int(inside.sum()), np.int64))
        return ids
