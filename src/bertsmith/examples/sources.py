"""Sources of samples: spans of text, pairs of texts, crops; special tokens; mixtures of corpora."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from bertsmith.corpus import Corpus, Mixture
from bertsmith.corpus.encode import ranges
from bertsmith.errors import BertsmithError
from bertsmith.examples.draw import Numbers, below, bits, shuffled, uniform
from bertsmith.ledger import Ledger

Kind = Literal["next", "order"]  # of the second text of a pair


class UnfitCorpusError(BertsmithError):
    """A corpus from which no sample of the requested kind can be made."""


class Sequences(NamedTuple):
    """Samples as tokens, concatenated."""

    ids: Numbers  # (T,) int64
    segments: Numbers  # (T,) int64
    lengths: Numbers  # (N,) int64
    labels: Numbers | None = None  # (N,) int64: labels of pairs; of crops, their document
    pairs: Numbers | None = None  # (N, 2) int64: of crops, the pair and a digest of the text


class SampleSource:
    """Base class of sources. A plan says what each sample contains; all its arrays are (N,)."""

    count: int  # samples in an epoch
    group = 1  # samples of such a group, counted from 0, share a micro-batch

    def __init__(self, corpus: Any, length: int, seed: int, pair: bool = False) -> None:
        self.corpus, self.tokenizer = corpus, corpus.tokenizer
        self.longest, self.seed = length, seed
        self.ledger = Ledger()  # parts of the corpus that are never used, and why
        self.slots = corpus.tokenizer.template(pair)
        self.extra = sum(slot.source is None for slot in self.slots)  # special tokens
        self.room = length - self.extra  # tokens of text
        if self.room < 2:
            special = f"{self.extra} are special tokens"
            raise BertsmithError(f"a length of {length} leaves no room for text: {special}")

    def plan(self, samples: Numbers) -> Any:
        """Return the plan of samples by their numbers; it has `lengths`."""
        raise NotImplementedError

    def make(self, plan: Any) -> Sequences:
        """Return the sequences of a plan."""
        raise NotImplementedError

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
        """Put special tokens around texts (tokens, lengths); returns ids, segments and lengths."""
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


class SpanPlan(NamedTuple):
    """The start of each span, and the length of its sequence."""

    starts: Numbers
    lengths: Numbers


class Spans(SampleSource):
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
            return SpanPlan(starts, np.minimum(self.room, self.total - starts) + self.extra)
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


class PairPlan(NamedTuple):
    """The positions of the two texts of each pair, and its label."""

    starts: Numbers
    sizes: Numbers
    second_starts: Numbers
    second_sizes: Numbers
    labels: Numbers  # 0: as in the text; 1: a random second text, or the two swapped
    lengths: Numbers


class Pairs(SampleSource):
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
        self, corpus: Corpus, *, length: int, kind: Kind = "next", short: float = 0.1, seed: int = 0
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
        document = np.searchsorted(self.ends, self.place_in_epoch(samples, self.count), "right")
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
        return PairPlan(starts, kept, others, other_kept, labels, kept + other_kept + self.extra)

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


LEAST = 8  # tokens in a crop, where the document has as many
WINDOW = 2  # both crops lie within so many full lengths


class CropPlan(NamedTuple):
    """Where each text begins, how long its sequence is, its pair and its document."""

    starts: Numbers
    lengths: Numbers
    labels: Numbers
    documents: Numbers


class Crops(SampleSource):
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


FRACTION = 24  # bits of the share of a corpus: 6e-8, so small shares are exact too
MEASURED = 2**16  # samples whose mean length is that of a corpus
LEAST_BLOCK = 16


class MixturePlan(NamedTuple):
    """The corpus of each sample, and what its own source has planned for it."""

    corpora: Numbers  # (N,) numbers of corpora
    groups: Numbers  # (N,) groups of samples, such as pairs
    plans: list[tuple[int, Any]]  # for each corpus that has samples
    lengths: Numbers


class MixedSource(SampleSource):
    """Samples of several sources whose tokens have given shares.

    Samples are divided into blocks. How many of a block come from each corpus is rounded so that
    the sums from the start are exact; their order in the block is a shuffle. So both the corpus of
    a sample and its number there are pure functions of (seed, sample), without any counting.
    Corpora with longer samples get fewer of them, since the shares are those of tokens.
    """

    def __init__(self, corpus: Mixture, sources: Sequence[SampleSource], seed: int) -> None:
        super().__init__(corpus, sources[0].longest, seed)
        self.sources, self.group = sources, sources[0].group
        for source in sources:
            self.ledger.counts.update(source.ledger.counts)
        shares = np.array([share for _, share in corpus.parts])
        rates = shares / [mean_length(source) for source in sources]
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
        corpora, own = self._divided(groups)
        numbers, lengths = own * self.group + place, np.zeros(len(samples), np.int64)
        plans = []
        for number in np.unique(corpora).tolist():
            plan = self.sources[number].plan(numbers[corpora == number])
            lengths[corpora == number] = plan.lengths
            plans.append((number, plan))
        return MixturePlan(corpora, groups, plans, lengths)

    def make(self, plan: MixturePlan) -> Sequences:
        """Return the sequences in the order of their samples."""
        every = [self.sources[part].make(own) for part, own in plan.plans]
        ids, segments, lengths = (np.concatenate([own[k] for own in every]) for k in range(3))
        order = np.argsort(np.argsort(plan.corpora, kind="stable"))
        lengths, starts = lengths[order], (np.cumsum(lengths) - lengths)[order]
        tokens, labels, pairs = ranges(starts, lengths), None, None
        if every[0].labels is not None:
            labels = np.concatenate([own.labels for own in every])[order]
        if every[0].pairs is not None:  # labels are documents
            labels = labels + self.before[plan.corpora]
            pairs = np.concatenate([own.pairs for own in every])[order]
            pairs[:, 0] = plan.groups
        return Sequences(ids[tokens], segments[tokens], lengths, labels, pairs)

    def _divided(self, groups: Numbers) -> tuple[Numbers, Numbers]:
        """Return the corpus of each group, and its number among those of that corpus."""
        block, place = np.divmod(groups, self.block)
        place = shuffled(place, self.block, self.seed, "mixture", block)
        before = self._drawn(block * self.block)
        ends = np.cumsum(self._drawn((block + 1) * self.block) - before, axis=0)
        corpora = (place >= ends).sum(0)
        starts = np.concatenate([np.zeros_like(ends[:1]), ends[:-1]])
        return corpora, (before - starts)[corpora, np.arange(len(groups))] + place

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
