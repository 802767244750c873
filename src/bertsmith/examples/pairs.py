"""Pairs of texts for next-sentence (BERT) and sentence-order prediction (ALBERT)."""

from typing import Literal, NamedTuple

import numpy as np

from bertsmith.corpus import Corpus
from bertsmith.examples.draw import Numbers, below, uniform
from bertsmith.examples.source import CorpusSource, Sequences


class PairPlan(NamedTuple):
    """The positions of the two texts of each pair, and its label."""

    starts: Numbers
    sizes: Numbers
    second_starts: Numbers
    second_sizes: Numbers
    labels: Numbers  # 0: as in the text; 1: a random second text, or the two swapped
    lengths: Numbers


class Pairs(CorpusSource):
    """Two texts of whole sentences, as in BERT's pre-training.

    The first text starts at a random sentence; sentences are added up to the full length (up to a
    random length with probability `short`), and the two texts are divided at a random sentence. In
    half of the samples the second text is not a continuation: for "next" it is taken from another
    document, for "order" the two are swapped. If they are too long, the longer one is truncated at
    either end. An epoch has as many samples as the text has full lengths.

    Lengths must not tell the label. So for "next" a random text is drawn for every sample, and the
    second text has the length of the shorter candidate. One that reaches the end of its document
    ends inside of the last sentence, as one that is truncated does.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        length: int,
        kind: Literal["next", "order"] = "next",
        short: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__(corpus, length, seed, pair=True)
        self.kind, self.short = kind, short
        sizes = np.diff(corpus.document_starts)
        several = np.diff(corpus.document_sentences) > 1
        self.demand_text(bool(several.any()), "no document has two sentences to make a pair of")
        other = kind != "next" or corpus.documents > 1
        self.demand_text(other, "one document has no other to take a random text from")
        alone = "documents of one sentence, which cannot be the first of a pair"
        self.ledger.note(alone, int((~several).sum()))
        parts = -(-sizes // self.room)
        self.ends = np.cumsum(np.where(several, parts, 0))
        self.count = int(self.ends[-1])
        # Random texts begin behind a first sentence too, if there is another such document.
        self.other_ends = self.ends if several.sum() > 1 else np.cumsum(parts)

    def plan(self, samples: Numbers) -> PairPlan:
        """Draw the pairs of samples by their numbers."""
        own = (self.seed, samples)
        sentence_starts, room = self.corpus.sentence_starts, self.room
        place = self.place_in_epoch(samples, self.count)
        document = np.searchsorted(self.ends, place, "right")
        first, last = self._sentences(document)
        sentence = self._start(samples, document, first, last)
        short = uniform(*own, "short") < self.short
        target = np.where(short, 2 + below(room - 1, *own, "target"), room)
        end = self._end(sentence_starts[sentence] + target, sentence + 2, last)
        middle = sentence + 1 + below(end - sentence - 1, *own, "middle")
        labels = (uniform(*own, "label") < 0.5).astype(np.int64)
        a, b, c = (sentence_starts[number] for number in (sentence, middle, end))
        starts, sizes, others, other_sizes = a, b - a, b, c - b
        if self.kind == "next":
            over, tail = c - a - target, c - sentence_starts[end - 1]
            spare = np.where(over > 0, np.minimum(over, tail - 1), below(tail, *own, "end"))
            other_sizes = other_sizes - spare
            random_start, random_size = self._elsewhere(samples, document, other_sizes)
            others = np.where(labels == 1, random_start, others)
            other_sizes = np.minimum(other_sizes, random_size)
        if self.kind == "order":  # before truncation, so that lengths do not reveal the label
            swap = labels == 1
            starts, others = np.where(swap, (others, starts), (starts, others))
            sizes, other_sizes = np.where(swap, (other_sizes, sizes), (sizes, other_sizes))
        # The longer text is truncated at either end until both fit.
        kept = np.minimum(sizes, np.maximum(-(-target // 2), target - other_sizes))
        other_kept = np.minimum(other_sizes, target - kept)
        starts = starts + below(sizes - kept + 1, *own, "front")
        others = others + below(other_sizes - other_kept + 1, *own, "other front")
        lengths = kept + other_kept + self.extra
        return PairPlan(starts, kept, others, other_kept, labels, lengths)

    def make(self, plan: PairPlan) -> Sequences:
        """Return the pairs with special tokens."""
        first, second = (plan.starts, plan.sizes), (plan.second_starts, plan.second_sizes)
        texts = [(self.corpus.gather(starts, sizes), sizes) for starts, sizes in (first, second)]
        return Sequences(*self.fill(texts), plan.labels)

    def _sentences(self, document: Numbers) -> tuple[Numbers, Numbers]:
        """Return the range of sentences of a document: the first, and one past the last."""
        bounds = self.corpus.document_sentences
        return bounds[document], bounds[document + 1]

    def _start(self, samples: Numbers, document: Numbers, first: Numbers, last: Numbers) -> Numbers:
        """The sentence of a random token, but not a document's last."""
        begin, end = self.document_bounds(document)
        token = begin + below(end - begin, self.seed, samples, "start")
        return np.clip(self.sentence_of(token), first, last - 2)

    def _end(self, token: Numbers, least: Numbers, last: Numbers) -> Numbers:
        """Return the first sentence of the document that begins at a token or later."""
        sentence = np.searchsorted(self.corpus.sentence_starts, token, "left")
        return np.minimum(np.maximum(sentence, least), last)

    def _elsewhere(
        self, samples: Numbers, document: Numbers, wanted: Numbers
    ) -> tuple[Numbers, Numbers]:
        """Draw a sentence of another document by its text; returns where it begins, and how much
        text follows: as much as is wanted, if the document has it.
        """
        own, ends = (self.seed, samples), self.other_ends
        begins = ends[document - 1] * (document > 0)
        parts = ends[document] - begins
        place = below(ends[-1] - parts, *own, "other document")
        other = np.searchsorted(ends, place + parts * (place >= begins), "right")
        first, last = self._sentences(other)
        begin, end = self.document_bounds(other)
        token = begin + below(np.maximum(end - begin - wanted, 1), *own, "other sentence")
        sentence = np.maximum(self.sentence_of(token), np.minimum(first + 1, last - 1))
        start, tail = (self.corpus.sentence_starts[number] for number in (sentence, last - 1))
        return start, end - below(end - np.maximum(tail, start), *own, "other end") - start
