"""Sentences → token ids in one array, each word encoded once.

A tokenizer spends most of its time on words that it has seen before. If it splits at spaces, a
sentence's ids are those of its words, concatenated; so the ids of words are cached, and a
batch of sentences is a look-up and one copy. If that is not certain (other white space next
to a space, for example), the whole sentence is tokenized. The ids are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Backend

from bertsmith.corpus.cuts import Cut, Mark, at_punctuation, at_spaces, between
from bertsmith.tokenizer.guard import guarded

Ints = np.ndarray[Any, np.dtype[Any]]
# The ids of all texts, end to end (T,), and how many each text has (N,).
Encode = Callable[[list[str]], tuple[Ints, Ints]]
KEPT = 400_000  # cached words; frequent words are usually seen first
TOGETHER = 100  # new words in one text


def encoder(definition: str, kept: int = KEPT) -> Encode:
    """Return a function that encodes sentences exactly as this tokenizer.json does."""
    content = json.loads(definition)
    plain = Plain(Backend.from_str(definition))
    spaces, punctuation, mark = at_spaces(content), at_punctuation(content), between(content)
    if spaces is None:
        return plain
    new: Encode = plain if mark is None else Marked(plain, mark)
    if punctuation is not None:
        new = Divided(punctuation, Words(new, kept // 2), new)
    return Divided(spaces, Words(new, kept), plain)


class Plain:
    """Encodes every text with the tokenizer."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def __call__(self, texts: list[str]) -> tuple[Ints, Ints]:
        """Encode texts."""
        with guarded("a text cannot be encoded"):
            found = self.backend.encode_batch_fast(texts, add_special_tokens=False)
            ids = [one.ids for one in found]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        return np.fromiter(chain.from_iterable(ids), np.uint32, int(lengths.sum())), lengths


class Marked:
    """Encodes many words as one text, separated by a mark: twice as fast as one by one."""

    def __init__(self, plain: Plain, mark: Mark) -> None:
        self.plain = plain
        self.mark = mark

    def __call__(self, texts: list[str]) -> tuple[Ints, Ints]:
        """Encode words."""
        if any(self.mark.text in text for text in texts):
            return self.plain(texts)
        joiner = self.mark.joiner
        starts = range(0, len(texts), TOGETHER)
        joined = [joiner.join(texts[start : start + TOGETHER]) + joiner for start in starts]
        ids, _ = self.plain(joined)
        marks = ids == self.mark.id
        ends = np.flatnonzero(marks)
        if len(ends) != len(texts):  # the mark's id occurred without the mark
            return self.plain(texts)
        return ids[~marks], np.diff(ends, prepend=-1) - 1


class Words:
    """Caches the ids of words, so that each word is encoded once."""

    def __init__(self, new: Encode, kept: int) -> None:
        self.new = new
        self.kept = kept
        self.numbers = _Numbers()
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
        ends = lengths.cumsum()
        places = np.repeat(starts - (ends - lengths), lengths)
        places += np.arange(len(places))
        ids = self.pool[places]
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
        self.cut = cut
        self.parts = parts
        self.whole = whole

    def __call__(self, texts: list[str]) -> tuple[Ints, Ints]:
        """Encode texts."""
        parts = list(map(self.cut, texts))
        counts = np.fromiter(map(len, parts), np.int64, len(parts))
        ids, of_parts = self.parts(list(chain.from_iterable(parts)))
        ends = np.concatenate([[0], of_parts.cumsum()])[counts.cumsum()]
        lengths = np.diff(ends, prepend=0)
        whole = np.flatnonzero(counts == 0)
        if len(whole):
            more, own = self.whole([texts[number] for number in whole])
            ids = np.insert(ids, np.repeat(ends[whole], own), more)
            lengths[whole] = own
        return ids, lengths
