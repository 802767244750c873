"""Pairs of texts for next-sentence (BERT) and sentence-order prediction (ALBERT)."""

from typing import Literal, NamedTuple

import numpy as np

from bertsmith.corpus import Corpus
from bertsmith.examples.draw import Numbers, below, uniform
from bertsmith.examples.source import Sequences, Template, demand_text, place_in_epoch
from bertsmith.ledger import Ledger


class PairPlan(NamedTuple):
    """The positions of the two texts of each pair, and its label."""

    starts: Numbers
    sizes: Numbers
    second_starts: Numbers
    second_sizes: Numbers
    labels: Numbers  # 0: as in the text; 1: a random second text, or the two swapped
    lengths: Numbers


class Pairs:
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

    group = 1

    def __init__(
        self,
        corpus: Corpus,
        *,
        length: int,
        kind: Literal["next", "order"] = "next",
        short: float = 0.1,
        seed: int = 0,
    ) -> None:
        self.corpus, self.kind, self.short, self.seed = corpus, kind, short, seed
        self.tokenizer, self.longest, self.ledger = corpus.tokenizer, length, Ledger()
        self.template = Template(corpus.tokenizer, pair=True)
        self.room = self.template.room(length)
        sizes = np.diff(corpus.document_starts)
        several = np.diff(corpus.document_sentences) > 1
        demand_text(corpus, bool(several.any()), "no document has two sentences to make a pair of")
        demand_text(
            corpus,
            kind != "next" or corpus.documents > 1,
            "one document has no other to take a random text from",
        )
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
        document = np.searchsorted(
            self.ends, place_in_epoch(samples, self.count, self.seed), "right"
        )
        first, last = self._sentences(document)
        sentence = self._start(samples, document, first, last)
        target = np.where(
            uniform(*own, "short") < self.short, 2 + below(room - 1, *own, "target"), room
        )
        end = self._end(sentence_starts[sentence] + target, sentence + 2, last)
        middle = sentence + 1 + below(end - sentence - 1, *own, "middle")
        labels = (uniform(*own, "label") < 0.5).astype(np.int64)
        a, b, c = (sentence_starts[place] for place in (sentence, middle, end))
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
            starts, others = np.where(swap, others, starts), np.where(swap, starts, others)
            sizes, other_sizes = (
                np.where(swap, other_sizes, sizes),
                np.where(swap, sizes, other_sizes),
            )
        starts, sizes, others, other_sizes = self._cut(
            own, target, starts, sizes, others, other_sizes
        )
        lengths = sizes + other_sizes + self.template.extra
        return PairPlan(starts, sizes, others, other_sizes, labels, lengths)

    def make(self, plan: PairPlan) -> Sequences:
        """Return the pairs with special tokens."""
        texts = [
            (self.corpus.gather(plan.starts, plan.sizes), plan.sizes),
            (self.corpus.gather(plan.second_starts, plan.second_sizes), plan.second_sizes),
        ]
        return Sequences(*self.template.fill(texts), plan.labels)

    def _sentences(self, document: Numbers) -> tuple[Numbers, Numbers]:
        """Return the range of sentences of a document: the first, and one past the last."""
        bounds = self.corpus.document_sentences
        return bounds[document], bounds[document + 1]

    def _start(self, samples: Numbers, document: Numbers, first: Numbers, last: Numbers) -> Numbers:
        """The sentence of a random token, but not a document's last."""
        begin, end = (self.corpus.document_starts[document + k] for k in (0, 1))
        token = begin + below(end - begin, self.seed, samples, "start")
        sentence = np.searchsorted(self.corpus.sentence_starts, token, "right") - 1
        return np.clip(sentence, first, last - 2)

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
        begin, end = (self.corpus.document_starts[other + k] for k in (0, 1))
        token = begin + below(np.maximum(end - begin - wanted, 1), *own, "other sentence")
        sentence = np.searchsorted(self.corpus.sentence_starts, token, "right") - 1
        start = self.corpus.sentence_starts[
            np.clip(sentence, np.minimum(first + 1, last - 1), None)
        ]
        tail = self.corpus.sentence_starts[last - 1]
        return start, end - below(end - np.maximum(tail, start), *own, "other end") - start

    def _cut(
        self,
        own: tuple[int, Numbers],
        target: Numbers,
        starts: Numbers,
        sizes: Numbers,
        others: Numbers,
        other_sizes: Numbers,
    ) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Truncate the longer text at either end until both fit."""
        kept = np.minimum(sizes, np.maximum(-(-target // 2), target - other_sizes))
        other_kept = np.minimum(other_sizes, target - kept)
        starts = starts + below(sizes - kept + 1, *own, "front")
        others = others + below(other_sizes - other_kept + 1, *own, "other front")
        return starts, kept, others, other_kept
