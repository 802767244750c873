"""Spans of running text, up to the maximum length."""

from typing import NamedTuple

import numpy as np

from bertsmith.corpus import Corpus
from bertsmith.examples.draw import Numbers
from bertsmith.examples.source import (
    Sequences,
    Template,
    demand_text,
    place_in_epoch,
    ranges,
)
from bertsmith.ledger import Ledger


class SpanPlan(NamedTuple):
    """The start of each span, and the length of its sequence."""

    starts: Numbers
    lengths: Numbers


class Spans:
    """Spans of full length; an epoch reads every token once.

    A document is cut into spans of the full length; the last two share the rest, so that neither is
    very short. Documents are not mixed: a short document is a short sequence. With `joined`, spans
    continue from one document into the next with a separator between them, as in RoBERTa; then
    every sequence but the last is full.
    """

    group = 1

    def __init__(self, corpus: Corpus, *, length: int, seed: int = 0, joined: bool = False) -> None:
        self.corpus, self.seed, self.joined = corpus, seed, joined
        self.tokenizer, self.longest, self.ledger = corpus.tokenizer, length, Ledger()
        self.template = Template(corpus.tokenizer, pair=False)
        self.room = self.template.room(length)
        demand_text(corpus, corpus.tokens > 0, "there is no text in it")
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
        place = place_in_epoch(samples, self.count, self.seed)
        if self.joined:
            starts = place * self.room
            sizes = np.minimum(self.room, self.total - starts)
            return SpanPlan(starts, sizes + self.template.extra)
        document = np.searchsorted(self.ends, place, side="right")
        starts, ends = (
            self.corpus.document_starts[document],
            self.corpus.document_starts[document + 1],
        )
        parts = -(-(ends - starts) // self.room)
        part = place - (self.ends[document] - parts)
        # The last two parts share the rest evenly.
        left = ends - starts - np.maximum(parts - 2, 0) * self.room
        half = np.where(parts > 1, -(-left // 2), left)
        begin = np.where(
            part < parts - 1, part * self.room, np.maximum(parts - 2, 0) * self.room + half
        )
        begin = np.where(parts == 1, 0, begin)
        size = np.where(part < parts - 2, self.room, np.where(part == parts - 2, half, left - half))
        size = np.where(parts == 1, left, size)
        return SpanPlan(starts + begin, size + self.template.extra)

    def make(self, plan: SpanPlan) -> Sequences:
        """Return the spans with special tokens."""
        sizes = plan.lengths - self.template.extra
        read = self._joined if self.joined else self.corpus.gather
        return Sequences(*self.template.fill([(read(plan.starts, sizes), sizes)]))

    def _joined(self, starts: Numbers, sizes: Numbers) -> Numbers:
        """Text with a separator where a document ends."""
        place = ranges(starts, sizes)
        document = np.searchsorted(self.begins, place, "right") - 1
        token = place - document
        inside = token < self.corpus.document_starts[document + 1]
        ids = np.full(len(place), self.tokenizer.sep_id, dtype=np.int64)
        ids[inside] = self.corpus.gather(token[inside], np.ones(int(inside.sum()), np.int64))
        return ids
