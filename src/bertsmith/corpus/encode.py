"""Lines → token ids in one array, each word encoded once.

The ids of a line are those of the whole line: a word's tokens may depend on the space before it, so
sentences are tokenized one by one only where that gives the same ids. Special tokens that a text
spells, such as "[MASK]", are tokenized as text.

A tokenizer spends most of its time on words that it has seen before. If it splits at spaces, the
ids of a text are those of its words, so they are cached, and a batch of texts is a look-up and one
copy. Where that is not certain (as with other white space next to a space), the whole text is
tokenized.
"""

import json
from collections.abc import Callable
from itertools import chain, compress
from typing import Any

import numpy as np
from tokenizers import AddedToken, Encoding
from tokenizers import Tokenizer as Backend

from bertsmith.corpus.cuts import Cut, Definition, at_punctuation, at_spaces, border
from bertsmith.tokenizer.guard import guarded

Ints = np.ndarray[Any, np.dtype[Any]]
# The ids of all texts, end to end (T,), and how many each text has (N,).
Encode = Callable[[list[str]], tuple[Ints, Ints]]
KEPT = 400_000  # cached words; frequent words are usually seen first
TOGETHER = 100  # new words in one text
MARK = "\n"


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """Return all numbers of many ranges [start, start + length), concatenated."""
    places = np.repeat(starts - (lengths.cumsum() - lengths), lengths)
    return places + np.arange(len(places))


class LineEncoder:
    """Encodes lines exactly as a tokenizer.json does, and tells their sentences apart."""

    def __init__(self, definition: str, kept: int = KEPT) -> None:
        content = json.loads(definition)
        backend = Backend.from_str(definition)
        backend.encode_special_tokens = True
        self.plain = Plain(backend)
        self.encode = _by_word(content, self.plain, kept)
        self.border = border(content)

    def __call__(self, lines: list[list[str]]) -> tuple[Ints, Ints]:
        """Return the ids of lines (T,), and how many each of their sentences has (S,).

        A line is the list of its sentences, which are the line when joined. A token that two
        sentences share belongs to the first.
        """
        separable = list(map(self._separable, lines))
        ids, lengths = self.encode(list(chain.from_iterable(compress(lines, separable))))
        if all(separable):
            return ids, lengths
        inseparable = [not apart for apart in separable]
        more, own = self.plain.sentences(list(compress(lines, inseparable)))
        together = np.repeat(inseparable, list(map(len, lines)))  # (S,)
        merged = np.zeros(len(together), np.int64)
        merged[together], merged[~together] = own, lengths
        places = np.repeat(together, merged)  # (T,)
        ids_of_all = np.zeros(len(places), np.uint32)
        ids_of_all[places], ids_of_all[~places] = more, ids
        return ids_of_all, merged

    def _separable(self, sentences: list[str]) -> bool:
        """Whether the ids of a line are those of its sentences, concatenated."""
        if len(sentences) == 1:
            return True
        if self.border is None or any(text[-1].isspace() for text in sentences[:-1]):
            return False
        return all(map(self.border.match, sentences[1:]))


class Plain:
    """Encodes every text with the tokenizer."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def __call__(self, texts: list[str]) -> tuple[Ints, Ints]:
        """Encode texts."""
        with guarded("a text cannot be encoded"):
            encodings = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        return np.fromiter(chain.from_iterable(ids), np.uint32, int(lengths.sum())), lengths

    def sentences(self, lines: list[list[str]]) -> tuple[Ints, Ints]:
        """Encode lines given as sentences; return ids, and how many each sentence has."""
        with guarded("a text cannot be encoded"):
            encodings = self.backend.encode_batch(["".join(line) for line in lines], False, False)
        ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.uint32)
        return ids, np.concatenate(list(map(_lengths, encodings, lines)))


def _lengths(encoded: Encoding, sentences: list[str]) -> Ints:
    """How many tokens of a line begin in each of its sentences."""
    starts = np.fromiter((start for start, _ in encoded.offsets), np.int64, len(encoded))
    borders = np.cumsum([len(text) for text in sentences[:-1]])
    ends = np.searchsorted(np.maximum.accumulate(starts), borders)
    return np.diff(ends, prepend=0, append=len(encoded))


class Marked:
    """Encodes words as one text, between marks that no line holds: twice as fast as singly."""

    def __init__(self, plain: Plain) -> None:
        self.plain = plain
        plain.backend.add_tokens([AddedToken(MARK, normalized=False)])
        self.id = plain.backend.token_to_id(MARK)

    def __call__(self, texts: list[str]) -> tuple[Ints, Ints]:
        """Encode words."""
        starts = range(0, len(texts), TOGETHER)
        joined = [MARK.join([*texts[start : start + TOGETHER], ""]) for start in starts]
        ids, _ = self.plain(joined)
        marks = ids == self.id
        return ids[~marks], np.diff(np.flatnonzero(marks), prepend=-1) - 1


class Words:
    """Caches the ids of words, so that each word is encoded once."""

    def __init__(self, new: Encode, kept: int) -> None:
        self.new, self.kept, self.numbers = new, kept, _Numbers()
        self.pool = np.zeros(0, np.uint32)  # the ids of all words, end to end
        self.ends = np.zeros(1, np.int64)  # where each word's ids end in the pool, from 0

    def __call__(self, texts: list[str]) -> tuple[Ints, Ints]:
        """Encode words."""
        numbers = np.fromiter(map(self.numbers.__getitem__, texts), np.int64, len(texts))
        if self.numbers.new:
            ids, lengths = self.new(self.numbers.new)
            self.pool = np.concatenate([self.pool, ids])
            self.ends = np.concatenate([self.ends, self.ends[-1] + lengths.cumsum()])
        starts = self.ends[numbers]
        lengths = self.ends[numbers + 1] - starts
        ids = self.pool[ranges(starts, lengths)]
        self._forget()
        return ids, lengths

    def _forget(self) -> None:
        """Limit the size of the cache by dropping the newest words."""
        self.numbers.new.clear()
        if len(self.numbers) > self.kept:
            while len(self.numbers) > self.kept:
                self.numbers.popitem()
            self.ends = self.ends[: self.kept + 1].copy()
            self.pool = self.pool[: self.ends[-1]].copy()


class _Numbers(dict[str, int]):
    """Maps every word to a number; a new word gets the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.new: list[str] = []

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        self.new.append(word)
        return number


class Divided:
    """Encodes texts in parts; texts that cannot be split are encoded as a whole."""

    def __init__(self, cut: Cut, parts: Encode, whole: Encode) -> None:
        self.cut, self.parts, self.whole = cut, parts, whole

    def __call__(self, texts: list[str]) -> tuple[Ints, Ints]:
        """Encode texts."""
        parts = list(map(self.cut, texts))
        counts = np.fromiter(map(len, parts), np.int64, len(parts))
        ids, of_parts = self.parts(list(chain.from_iterable(parts)))
        ends = np.concatenate([[0], of_parts.cumsum()])[counts.cumsum()]
        lengths = np.diff(ends, prepend=0)
        undivided = np.flatnonzero(counts == 0)
        if len(undivided):
            more, own = self.whole([texts[number] for number in undivided])
            ids = np.insert(ids, np.repeat(ends[undivided], own), more)
            lengths[undivided] = own
        return ids, lengths


def _by_word(definition: Definition, plain: Plain, kept: int) -> Encode:
    """Return an encoder of texts that encodes each word once, if they can be split into words."""
    spaces, punctuation = at_spaces(definition), at_punctuation(definition)
    if spaces is None:
        return plain
    new: Encode = Marked(plain)
    if punctuation is not None:
        new = Divided(punctuation, Words(new, kept // 2), new)
    return Divided(spaces, Words(new, kept), plain)
