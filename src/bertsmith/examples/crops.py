"""Two texts of one document: what contrastive training learns to bring together."""

from typing import NamedTuple

import numpy as np

from bertsmith.corpus import Corpus
from bertsmith.examples.draw import Numbers, below, bits, uniform
from bertsmith.examples.source import CorpusSource, Sequences

LEAST = 8  # tokens in a crop, where the document has as many
WINDOW = 2  # both crops lie within so many full lengths


class CropPlan(NamedTuple):
    """Where each text begins, how long its sequence is, its pair and its document."""

    starts: Numbers
    lengths: Numbers
    labels: Numbers
    documents: Numbers


class Crops(CorpusSource):
    """Contrastive pairs: samples 2k and 2k + 1 are the two texts of pair k.

    Both come from one window of a document. The second is a random crop with a log-uniform length.
    The first is the first line of the document with probability `titles`, a sentence of the window
    with probability `sentences`, the second text again (with its own masks or dropout) with
    probability `same`, and otherwise another random crop. An epoch has as many pairs as the text
    has full lengths.
    """

    group = 2

    def __init__(
        self,
        corpus: Corpus,
        *,
        length: int,
        titles: float = 0.3,
        sentences: float = 0.5,
        same: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(corpus, length, seed)
        self.bounds = np.cumsum([titles, sentences, same])
        sizes = np.diff(corpus.document_starts)
        enough = sizes >= 2 * LEAST
        self.demand_text(bool(enough.sum() > 1), "fewer than two documents hold two texts")
        self.ledger.note("documents too short for two texts", int((~enough).sum()))
        self.ends = np.cumsum(np.where(enough, -(-sizes // self.room), 0))
        self.count = 2 * int(self.ends[-1])

    def plan(self, samples: Numbers) -> CropPlan:
        """Draw the texts of samples by their numbers."""
        pairs = samples // self.group
        own = (self.seed, pairs)
        place = self.place_in_epoch(pairs, int(self.ends[-1]))
        document = np.searchsorted(self.ends, place, "right")
        first, last = self.document_bounds(document)
        wide = np.minimum(last - first, WINDOW * self.room)
        window = first + below(last - first - wide + 1, *own, "window")
        size, other_size = self._size(wide, *own, "second"), self._size(wide, *own, "first")
        second = window + below(wide - size + 1, *own, "second start")
        crop = window + below(wide - other_size + 1, *own, "first start")
        sentence, sentence_size = self._sentence(window + below(wide, *own, "sentence"))
        title, title_size = self._sentence(first)
        titled, chosen, same = (uniform(*own, "kind") < self.bounds[:, None]).astype(bool)
        starts = np.select([titled, chosen, same], [title, sentence, second], crop)
        sizes = np.select([titled, chosen, same], [title_size, sentence_size, size], other_size)
        is_second = samples % self.group == 1
        starts, sizes = np.where(is_second, second, starts), np.where(is_second, size, sizes)
        return CropPlan(starts, sizes + self.extra, pairs, document)

    def make(self, plan: CropPlan) -> Sequences:
        """Return the texts with special tokens."""
        sizes = plan.lengths - self.extra
        text = self.corpus.gather(plan.starts, sizes)
        begins = np.cumsum(sizes) - sizes
        place = np.arange(len(text)) - np.repeat(begins, sizes)
        digests = np.add.reduceat(bits("text", place, text), begins).astype(np.int64)
        pairs = np.stack([plan.labels, digests], 1)
        return Sequences(*self.fill([(text, sizes)]), plan.documents, pairs)

    def _size(self, wide: Numbers, *keys: int | str | Numbers) -> Numbers:
        """A length on a logarithmic scale, up to the whole window or the room for text."""
        most = np.minimum(wide, self.room)
        least = np.minimum(LEAST, most)
        return np.minimum(most, (least * (most / least) ** uniform(*keys)).round().astype(np.int64))

    def _sentence(self, token: Numbers) -> tuple[Numbers, Numbers]:
        """The sentence that a token is in: where it begins, and its length, cut to the room."""
        starts, number = self.corpus.sentence_starts, self.sentence_of(token)
        return starts[number], np.minimum(starts[number + 1] - starts[number], self.room)
