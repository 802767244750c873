"""Decontamination: find documents that share a word n-gram with benchmark files."""

import base64
import hashlib
import io
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from bertsmith.corpus.documents import Document
from bertsmith.corpus.duplicates import mixed
from bertsmith.corpus.encode import Ints
from bertsmith.corpus.records import records
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.tokenizer.scripts import UNSPACED

SHORTEST = 8  # words; a text of fewer is not looked for, and one shorter than n is one n-gram
MOST = 1 << 24  # n-grams, of 20 bytes each in every worker
BASES = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1342543DE82EF95))  # odd: they have inverses
CACHED = 1 << 20  # cached words
WORD = re.compile(f"{UNSPACED.pattern}|(?:(?!{UNSPACED.pattern})[^\\W_])+")


@dataclass(frozen=True)
class Benchmarks:
    """All word n-grams of some texts, as sorted hashes of 128 bits; n is `size`.

    Case, punctuation and white space are ignored. In scripts without spaces, characters are words.
    A text of fewer words (but at least `SHORTEST`) is one shorter n-gram.
    """

    size: int
    sizes: Ints  # lengths of n-grams: `size`, and those of shorter texts
    keys: Ints  # (G,) uint64, sorted
    checks: Ints  # (G,) uint64: the other half of each hash
    texts: Ints  # (G,) uint32: the text of each n-gram
    starts: Ints  # (F + 1,) the number of each file's first text, and of texts in all
    files: tuple[str, ...]

    @classmethod
    def read(cls, paths: Sequence[str], size: int, ledger: Ledger) -> Self:
        """Read the texts of files: lines of text, cells of tables, strings in JSON."""
        ngrams: list[tuple[Ints, Ints, Ints]] = []
        starts, sizes, numbers, count = [0], {size}, WordNumbers(), 0
        for path in paths:
            number = starts[-1]
            for text in _strings(records(Path(path))):
                words = numbers.of(text)
                if len(words) < min(SHORTEST, size):
                    short = f"texts of {Path(path).name} too short to look for"
                    ledger.note(short, bool(len(words)))
                    continue
                sizes.add(length := min(size, len(words)))
                keys, checks = _ngram_hashes(words, length)
                ngrams.append((keys, checks, np.full(len(keys), number, np.uint32)))
                number, count = number + 1, count + len(keys)
                if count > MOST:
                    many = f"more than {MOST:,} n-grams of {size} words"
                    raise BertsmithError(f"{path}: the files to look for have {many}; name fewer")
            starts.append(number)
        if not ngrams:
            raise BertsmithError(f"{paths[0]}: no text of {min(SHORTEST, size)} words to look for")
        keys, checks, texts = (np.concatenate(columns) for columns in zip(*ngrams, strict=True))
        order = np.argsort(keys, kind="stable")
        names = tuple(Path(path).name for path in paths)
        table = (keys[order], checks[order], texts[order])
        return cls(size, np.array(sorted(sizes)), *table, np.array(starts), names)

    def packed(self) -> str:
        """Serialize to a string, for workers; equal texts give equal strings."""
        arrays = {name: v for name, v in vars(self).items() if isinstance(v, np.ndarray)}
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, **arrays)
        names = json.dumps([self.size, self.files])
        return names + "\n" + base64.b85encode(stream.getvalue()).decode()

    @classmethod
    def unpacked(cls, text: str) -> Self:
        """Read what `packed` returned."""
        names, _, content = text.partition("\n")
        size, files = json.loads(names)
        with np.load(io.BytesIO(base64.b85decode(content)), allow_pickle=False) as arrays:
            return cls(size=size, files=tuple(files), **arrays)

    def fingerprint(self) -> str:
        """A SHA-256 sum of all n-grams."""
        total = hashlib.sha256(json.dumps([self.size, self.files]).encode())
        for array in (self.keys, self.checks, self.texts):
            total.update(array.data)
        return total.hexdigest()

    @cached_property
    def _low_bits(self) -> Ints:
        """A table of the low bits of all keys, which rules out most n-grams of a corpus."""
        bits = min(26, max(16, int(len(self.keys) * 8).bit_length()))
        table = np.zeros(1 << bits, bool)
        table[self.keys & np.uint64(len(table) - 1)] = True
        return table

    def found(self, words: Ints, ends: Ints) -> tuple[Ints, Ints]:
        """Pairs of a document and a text with a common n-gram; `ends` says where documents end."""
        pairs = [np.zeros((2, 0), np.int64)]
        low = np.uint64(len(self._low_bits) - 1)
        for size in self.sizes.tolist():
            keys, checks = _ngram_hashes(words, size)
            starts = np.flatnonzero(self._low_bits[keys & low])
            owners = np.searchsorted(ends, starts, "right")
            inside = starts + size <= ends[owners]
            starts, owners = starts[inside], owners[inside]
            own = keys[starts]
            begin, end = (np.searchsorted(self.keys, own, side) for side in ("left", "right"))
            counts = end - begin
            entries = np.arange(counts.sum()) + np.repeat(begin - counts.cumsum() + counts, counts)
            same = self.checks[entries] == np.repeat(checks[starts], counts)
            pairs.append(np.stack([np.repeat(owners, counts)[same], self.texts[entries[same]]]))
        documents, texts = np.unique(np.concatenate(pairs, axis=1), axis=1)
        return documents, texts

    def file_of(self, texts: Ints) -> Ints:
        """The number of the file of each text."""
        return np.searchsorted(self.starts, texts, "right") - 1


class Overlap:
    """Finds documents that contain benchmark texts, in batches of documents."""

    def __init__(self, benchmarks: Benchmarks, removes: bool) -> None:
        self.benchmarks, self.removes, self.numbers = benchmarks, removes, WordNumbers()
        self.texts: list[Ints] = []  # numbers of benchmark texts that documents contain

    def filtered(self, documents: Sequence[Document], ledger: Ledger) -> Iterator[Document]:
        """Yield the documents to keep; those with benchmark texts are counted for each file."""
        words = [self.numbers.of("\n".join(document)) for document in documents]
        ends = np.cumsum([len(own) for own in words])
        owners, texts = self.benchmarks.found(np.concatenate(words), ends)
        files = self.benchmarks.file_of(texts)
        fate = "left out" if self.removes else "kept"
        shared = f"{self.benchmarks.size} words in a row"
        if len(self.benchmarks.sizes) > 1:
            shared += " (or a whole text of fewer)"
        for _, number in np.unique(np.stack([owners, files]), axis=1).T.tolist():
            ledger.note(f"documents with {shared} of {self.benchmarks.files[number]}, {fate}")
        self.texts.append(np.unique(texts).astype(np.uint32))
        removed = set(owners.tolist()) if self.removes else set()
        yield from (document for n, document in enumerate(documents) if n not in removed)


class WordNumbers(dict[str, int]):
    """A 64-bit hash of every word, with a cache."""

    def __missing__(self, word: str) -> int:
        if len(self) >= CACHED:
            self.clear()
        digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
        number = self[word] = int.from_bytes(digest, "little")
        return number

    def of(self, text: str) -> Ints:
        """The numbers of a text's words (W,)."""
        plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
        return np.array([self[word] for word in WORD.findall(plain.lower())], np.uint64)


def _ngram_hashes(words: Ints, size: int) -> tuple[Ints, Ints]:
    """Two rolling hashes of every n-gram: polynomials, each computed from one cumulative sum."""
    count = max(0, len(words) - size + 1)
    hashes = []
    for base in BASES:
        inverse_powers = np.full(len(words) + 1, np.uint64(pow(int(base), -1, 1 << 64)))
        inverse_powers[0] = 1
        powers = np.full(len(words) + 1, base)
        powers[0] = 1
        sums = np.concatenate([[np.uint64(0)], np.cumsum(words * np.cumprod(inverse_powers)[:-1])])
        ngrams = (sums[size : size + count] - sums[:count]) * np.cumprod(powers)[:count]
        hashes.append(mixed(ngrams ^ np.uint64(size)))
        words = mixed(words)
    return hashes[0], hashes[1]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inside in value.values():
            yield from _strings(inside)
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        for inside in value:
            yield from _strings(inside)
