"""Merge finished pieces into shards, without duplicate documents."""

import mmap
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from pathlib import Path

import numpy as np

from bertsmith.corpus.corpus import Corpus
from bertsmith.corpus.duplicates import mark_exact, mark_near, signatures
from bertsmith.corpus.encode import Ints
from bertsmith.corpus.manifest import SplitSize
from bertsmith.corpus.overlap import Benchmarks
from bertsmith.corpus.shards import SplitWriter
from bertsmith.corpus.workshop import Outcome
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.settings.corpus import SPLITS, CorpusSettings

Step = Callable[[int, int], None]
SOME = 1 << 20  # tokens of a corpus that are read at once


def piece_name(number: int) -> str:
    """The file of a finished piece."""
    return f"{number:08}.npz"


@dataclass(frozen=True)
class Merging:
    """How pieces become shards; `there` is the corpus that they are added to, if there is one."""

    settings: CorpusSettings
    dtype: str
    ledger: Ledger
    benchmarks: Benchmarks | None
    there: tuple[Corpus, ...] = ()  # its splits that have documents
    suffix: str = ""  # of the names of new files


def merge(work: Path, out: Path, pieces: int, how: Merging, step: Step) -> dict[str, SplitSize]:
    """Write the shards of both splits into `out`; returns the size of each split."""
    settings, ledger = how.settings, how.ledger
    repeated = _repeated(work, pieces, how)
    matched: list[Ints] = []
    with ExitStack() as stack:
        writers = []
        for name in SPLITS:
            if not how.suffix:
                shutil.rmtree(out / name, ignore_errors=True)
            writer = SplitWriter(out / name, np.dtype(how.dtype), settings.shard_tokens, how.suffix)
            writers.append(stack.enter_context(writer))
            for corpus in how.there:
                if corpus.split == name:
                    _continue(writer, corpus)
            if not writer.indexes:
                writer.start()
        before = sum(corpus.documents for corpus in how.there)
        for number, outcome in enumerate(_outcomes(work, pieces)):
            count = len(outcome.document_sentences)
            fate = held_out(outcome.digests, settings.held_out).astype(np.int8)
            if repeated is not None:
                fate[repeated[before : before + count] != 0] = -1
            for kind, writer in enumerate(writers):
                writer.append(*_chosen(outcome, fate == kind))
            before += count
            matched.append(outcome.matched)
            for what, times in outcome.counts.items():
                ledger.note(what, times)
            step(number + 1, pieces)
        for writer in writers:
            writer.finish()
    if how.benchmarks is not None:
        files = how.benchmarks.file_of(np.unique(np.concatenate(matched)))
        for number, name in enumerate(how.benchmarks.files):
            ledger.note(f"texts of {name} that documents contain", int((files == number).sum()))
    rows = ((w.tokens, w.sentences, w.documents, w.before + len(w.shards)) for w in writers)
    return {name: SplitSize(*row) for name, row in zip(SPLITS, rows, strict=True)}


def _continue(writer: SplitWriter, corpus: Corpus) -> None:
    """Continue what is there: its full shards stay, and the rest is copied to new files."""
    full, left = divmod(corpus.tokens, corpus.shard_tokens)
    indexes = corpus.sentence_starts, corpus.document_sentences, corpus.document_starts
    writer.start(indexes, full, corpus.shard(full) if left else None)


def _stored(corpus: Corpus, near: bool) -> Iterator[Outcome]:
    """The documents of a corpus, some at a time, as if they were pieces."""
    bounds, document = corpus.document_starts, 0
    while document < corpus.documents:
        end = int(np.searchsorted(bounds, bounds[document] + SOME, "right")) - 1
        end = max(end, document + 1)
        first, last = corpus.document_sentences[[document, end]]
        start = bounds[document]
        tokens = corpus.gather(np.array([start]), np.array([bounds[end] - start]))
        lengths = np.diff(corpus.sentence_starts[first : last + 1])
        counts = np.diff(corpus.document_sentences[document : end + 1])
        tokens = tokens.astype(corpus.manifest.dtype)
        signed = signatures(tokens, lengths, counts, near=near)
        yield Outcome(tokens, lengths, counts, lengths, signed, {})
        document = end


def _token_digests(outcome: Outcome) -> Ints:
    """A digest (D, 2) of each document's tokens."""
    ends = outcome.sentence_lengths.cumsum(dtype=np.int64)
    ends = ends[outcome.document_sentences.cumsum(dtype=np.int64) - 1]
    documents = np.split(outcome.tokens, ends[:-1]) if len(ends) else []
    digests = (blake2b(tokens.tobytes(), digest_size=16).digest() for tokens in documents)
    return np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)


def held_out(digests: Ints, share: float) -> Ints:
    """Return which documents (D,) are held out: by digest, so that equal texts stay together."""
    return digests[:, 0] < np.uint64(min(int(share * 2.0**64), 2**64 - 1))


def _chosen(outcome: Outcome, chosen: Ints) -> tuple[Ints, Ints, Ints]:
    """Tokens, lengths of sentences and numbers of sentences of some documents of a piece."""
    if chosen.all():
        return outcome.tokens, outcome.sentence_lengths, outcome.document_sentences
    sentences = np.repeat(chosen, outcome.document_sentences)
    tokens = outcome.tokens[np.repeat(sentences, outcome.sentence_lengths)]
    return tokens, outcome.sentence_lengths[sentences], outcome.document_sentences[chosen]


def _outcomes(work: Path, pieces: int) -> Iterator[Outcome]:
    for number in range(pieces):
        path = work / piece_name(number)
        try:
            yield Outcome.from_bytes(path)
        except (zipfile.BadZipFile, ValueError, KeyError, EOFError) as error:
            path.unlink()
            advice = "run the same command again"
            raise BertsmithError(f"{path} was damaged and removed; {advice}") from error


def _repeated(work: Path, pieces: int, how: Merging) -> Ints | None:
    """Return which documents repeat an earlier one, as a mapped file; None if not requested.

    The first are those of the corpus that is added to. Of these only the tokens are known, so all
    are compared by them.
    """
    settings, ledger = how.settings, how.ledger
    if settings.duplicates is None:
        return None
    near = settings.duplicates == "near"
    count, there = 0, sum(corpus.documents for corpus in how.there)
    stored = chain.from_iterable(_stored(corpus, near) for corpus in how.there)
    with (work / "digests").open("wb") as digests, (work / "signatures").open("wb") as signed:
        for outcome in chain(stored, _outcomes(work, pieces)):
            keys = _token_digests(outcome) if how.there else outcome.digests
            count += len(keys)
            digests.write(np.ascontiguousarray(keys).data)
            if near:
                signed.write(np.ascontiguousarray(outcome.signatures).data)
    if not count:
        return None
    _zeros(work / "repeated", count)
    maps = Maps()
    repeated = maps.open(work / "repeated", np.uint8)
    mark_exact(maps.open(work / "digests", np.uint64).reshape(count, 2), repeated, maps.release)
    exact = int(np.count_nonzero(repeated[there:]))
    ledger.note("exact duplicates, left out", exact)
    if near:
        _zeros(work / "keys", 8 * count)
        keys = maps.open(work / "keys", np.uint64)
        rows = maps.open(work / "signatures", np.uint32).reshape(count, -1)
        mark_near(rows, settings.similarity, repeated, keys, maps.release)
        ledger.note("near-duplicates, left out", int(np.count_nonzero(repeated[there:])) - exact)
    return repeated


class Maps:
    """Memory-mapped files that are changed in place."""

    def __init__(self) -> None:
        self.maps: list[mmap.mmap] = []

    def open(self, path: Path, dtype: type[np.generic]) -> Ints:
        """Map a file."""
        with path.open("r+b") as stream:
            self.maps.append(mmap.mmap(stream.fileno(), 0))
        return np.frombuffer(self.maps[-1], dtype)

    def release(self) -> None:
        """Release the memory of the mapped files; their content is kept."""
        for mapped in self.maps:
            if hasattr(mmap, "MADV_DONTNEED"):
                mapped.madvise(mmap.MADV_DONTNEED)


def _zeros(path: Path, size: int) -> None:
    """Create a file of zeros, whose blocks are allocated now: a full disk fails here, not later."""
    with path.open("wb") as stream:
        for start in range(0, size, 1 << 20):
            stream.write(bytes(min(1 << 20, size - start)))
