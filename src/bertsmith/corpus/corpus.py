"""Corpus: a folder of token shards, opened for reading; Mixture: several that are read together."""

from collections.abc import Sequence
from dataclasses import astuple
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from bertsmith.corpus.encode import Ints, ranges
from bertsmith.corpus.manifest import REMEDY, FileChecks, Manifest
from bertsmith.corpus.shards import HEADER, INDEXES, header, shard_name
from bertsmith.errors import BertsmithError
from bertsmith.files import cause
from bertsmith.settings.corpus import SPLITS
from bertsmith.store import fingerprint
from bertsmith.tokenizer import Tokenizer


class Corpus:
    """A folder of token shards, opened for reading: all tokens of a split as one long array.

    Files are mapped into memory and read when they are used. The ids of a line are those of the
    whole line, without special tokens around it; special tokens that a text spells are text.
    """

    def __init__(self, directory: Path, split: str, manifest: Manifest) -> None:
        self.directory, self.split, self.manifest = directory, split, manifest
        self.tokens, self.sentences, self.documents, shards = astuple(manifest.splits[split])
        self.shard_tokens = int(manifest.settings["shard_tokens"])
        self.sums, self.files = FileChecks(directory, manifest), manifest.current()
        lengths = {"sentence_starts": self.sentences + 1}
        self.sentence_starts, self.document_sentences, self.document_starts = (
            self._map(name, lengths.get(name, self.documents + 1), "<i8") for name in INDEXES
        )
        lasts = (self.tokens, self.sentences, self.tokens)
        rows = (self.sentence_starts, self.document_sentences, self.document_starts)
        if any(row[0] or row[-1] != last for row, last in zip(rows, lasts, strict=True)):
            raise BertsmithError(f"{directory / split} is damaged: its documents end elsewhere")
        self._shards: list[Ints | None] = [None] * shards

    @classmethod
    def open(cls, directory: str | Path, split: str = "train", *, check: bool = False) -> Self:
        """Open a split; file sizes are verified, with `check` sums too (else see `FileChecks`)."""
        directory = Path(directory)
        manifest = Manifest.read(directory)
        if split not in manifest.splits:
            raise BertsmithError(f"unknown split {split!r}; known: {', '.join(SPLITS)}")
        if complaints := manifest.damaged(directory, sums=check):
            more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
            raise BertsmithError(complaints[0] + more)
        if not manifest.splits[split].documents:
            raise BertsmithError(f"{directory}: the split {split} contains no documents")
        return cls(directory, split, manifest)

    def __repr__(self) -> str:
        return (
            f"<corpus {self.directory.name} {self.split}: {self.documents:,} documents,"
            f" {self.sentences:,} sentences, {self.tokens:,} tokens>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled by its path and opened again, so that mapped files are not copied.
        return Corpus.open, (self.directory, self.split)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the corpus."""
        for name in self.manifest.files:
            if name.startswith("tokenizer/"):
                self.sums.demand(name)
        return Tokenizer.load(self.directory / "tokenizer")

    @property
    def parts(self) -> tuple[tuple[Self, float], ...]:
        """Corpora with their shares: this one alone."""
        return ((self, 1.0),)

    def fingerprint(self) -> str:
        """The SHA-256 sum of the manifest, which identifies the corpus."""
        return self.manifest.fingerprint()

    def gather(self, starts: Ints, lengths: Ints) -> Ints:
        """Return the tokens of many slices [start, start + length), concatenated, as int64."""
        starts, lengths = np.asarray(starts, np.int64), np.asarray(lengths, np.int64)
        places = ranges(starts, lengths)
        if not len(places):
            return places
        if int(starts.min()) < 0 or int((starts + lengths).max()) > self.tokens:
            raise IndexError(f"a slice goes beyond the {self.tokens:,} tokens")
        filled = lengths > 0
        self._check_files(np.concatenate([starts[filled], (starts + lengths - 1)[filled]]))
        return self._in_vocabulary(self._gathered(places))

    def _gathered(self, places: Ints) -> Ints:
        if len(self._shards) == 1:
            return self.shard(0)[places].astype(np.int64)
        shards, within = np.divmod(places, self.shard_tokens)
        # Group tokens by shard: sorting 16-bit numbers is a single pass.
        order = np.argsort(shards.astype(np.min_scalar_type(len(self._shards) - 1)), kind="stable")
        bounds = np.searchsorted(shards[order], np.arange(len(self._shards) + 1))
        tokens = np.full(len(places), -1, np.int64)
        for number in np.flatnonzero(np.diff(bounds)):
            some = order[bounds[number] : bounds[number + 1]]
            tokens[some] = self.shard(int(number))[within[some]]
        return tokens

    def _check_files(self, places: Ints) -> None:
        """Raise an error if files were damaged since: truncated ones would crash the process."""
        shards = np.unique(places // self.shard_tokens).tolist()
        for name in (*INDEXES, *map(shard_name, shards)):
            self.sums.demand(self.files[f"{self.split}/{name}"])

    def _in_vocabulary(self, ids: Ints) -> Ints:
        if (largest := int(ids.max())) >= self.tokenizer.size:
            vocabulary = f"its tokenizer {self.tokenizer.size:,} tokens"
            fault = f"it has the token {largest:,}, and {vocabulary}"
            raise BertsmithError(f"{self.directory / self.split} is damaged: {fault}; {REMEDY}")
        return ids

    def shard(self, number: int) -> Ints:
        """The tokens of a shard, mapped into memory."""
        shard = self._shards[number]
        if shard is None:
            length = min(self.shard_tokens, self.tokens - number * self.shard_tokens)
            shard = self._map(shard_name(number), length, self.manifest.dtype)
            self._shards[number] = shard
        return shard

    def _map(self, name: str, length: int, dtype: str) -> Ints:
        file, kind = self.files[f"{self.split}/{name}"], np.dtype(dtype)
        path = self.directory / file
        self.sums.demand(file)
        try:
            with path.open("rb") as stream:
                own = stream.read(HEADER) == header(kind, length)
            mapped = np.memmap(path, kind, "r", HEADER, (length,))
        except (OSError, ValueError) as error:
            raise BertsmithError(f"{path} is damaged: {cause(error)}; {REMEDY}") from error
        if not own:
            raise BertsmithError(f"{path} is damaged: its header is not that of {length:,} {kind}")
        return mapped.view(np.ndarray)  # plain arrays are indexed faster


def check(directory: str | Path) -> tuple[int, list[str]]:
    """Verify all SHA-256 sums of a prepared corpus; return the number of files, and problems."""
    manifest = Manifest.read(Path(directory))
    return len(manifest.files), manifest.damaged(Path(directory), sums=True)


class Mixture:
    """Several corpora that a run reads together; `weights` are their shares, up to a factor."""

    def __init__(self, corpora: Sequence[Corpus], weights: Sequence[float]) -> None:
        first, *others = corpora
        for other in others:
            demand_same_vocabulary(first, other)
        self.parts = tuple(zip(corpora, (w / sum(weights) for w in weights), strict=True))
        self.split, self.tokenizer = first.split, first.tokenizer
        self.directory = " + ".join(str(corpus.directory) for corpus in corpora)
        self.tokens = sum(corpus.tokens for corpus in corpora)
        self.documents = sum(corpus.documents for corpus in corpora)

    def fingerprint(self) -> str:
        """A SHA-256 sum that identifies the corpora and their shares."""
        return fingerprint([(corpus.fingerprint(), share) for corpus, share in self.parts])


def demand_same_vocabulary(first: Corpus | Mixture, other: Corpus) -> None:
    """Refuse a corpus that was prepared with another tokenizer."""
    if other.tokenizer.vocabulary() != first.tokenizer.vocabulary():
        fault = f"its vocabulary is not that of {first.directory}"
        raise BertsmithError(f"{other.directory}: {fault}; prepare both with the same tokenizer")
