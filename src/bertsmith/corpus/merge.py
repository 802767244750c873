"""Merge finished pieces into shards, without duplicate documents."""

from __future__ import annotations

import mmap
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from bertsmith.corpus.duplicates import mark_exact, mark_near
from bertsmith.corpus.encode import Ints
from bertsmith.corpus.manifest import Split
from bertsmith.corpus.shards import SplitWriter
from bertsmith.corpus.workshop import Outcome
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.settings.corpus import SPLITS, Settings

Step = Callable[[int, int], None]


def piece_name(number: int) -> str:
    """The file of a finished piece."""
    return f"{number:08}.npz"


def merge(
    work: Path, out: Path, pieces: int, settings: Settings, dtype: str, ledger: Ledger, step: Step
) -> dict[str, Split]:
    """Write the shards of both splits into `out`; returns the size of each split."""
    repeated = _repeated(work, pieces, settings, ledger)
    for name in SPLITS:
        shutil.rmtree(out / name, ignore_errors=True)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(SplitWriter(out / name, np.dtype(dtype), settings.shard_tokens))
            for name in SPLITS
        ]
        before = 0
        for number, outcome in enumerate(_outcomes(work, pieces)):
            count = len(outcome.document_sentences)
            fate = held_out(outcome.digests, settings.held_out).astype(np.int8)
            if repeated is not None:
                fate[repeated[before : before + count] != 0] = -1
            for kind, writer in enumerate(writers):
                writer.append(*_chosen(outcome, fate == kind))
            before += count
            for what, times in outcome.counts.items():
                ledger.note(what, times)
            step(number + 1, pieces)
        for writer in writers:
            writer.finish()
    return {
        name: Split(writer.tokens, writer.sentences, writer.documents, len(writer.shards))
        for name, writer in zip(SPLITS, writers, strict=True)
    }


def held_out(digests: Ints, share: float) -> Ints:
    """Return which documents (D,) are held out: by digest, so that equal texts stay together."""
    return digests[:, 0] < np.uint64(min(int(share * 2.0**64), 2**64 - 1))


def _chosen(outcome: Outcome, chosen: Ints) -> tuple[Ints, Ints, Ints]:
    """Tokens, lengths of sentences and numbers of sentences of some documents of a piece."""
    if chosen.all():
        return outcome.tokens, outcome.sentence_lengths, outcome.document_sentences
    sentences = np.repeat(chosen, outcome.document_sentences)
    tokens = np.repeat(sentences, outcome.sentence_lengths)
    return (
        outcome.tokens[tokens],
        outcome.sentence_lengths[sentences],
        outcome.document_sentences[chosen],
    )


def _outcomes(work: Path, pieces: int) -> Iterator[Outcome]:
    for number in range(pieces):
        path = work / piece_name(number)
        try:
            yield Outcome.from_bytes(path)
        except (zipfile.BadZipFile, ValueError, KeyError, EOFError) as error:
            path.unlink()
            message = f"{path} was damaged and removed; run the same command again"
            raise BertsmithError(message) from error


def _repeated(work: Path, pieces: int, settings: Settings, ledger: Ledger) -> Ints | None:
    """Return which documents repeat an earlier one, as a mapped file; None if not requested."""
    if settings.duplicates is None:
        return None
    near = settings.duplicates == "near"
    count = 0
    with (work / "digests").open("wb") as digests, (work / "signatures").open("wb") as signed:
        for outcome in _outcomes(work, pieces):
            count += len(outcome.digests)
            digests.write(np.ascontiguousarray(outcome.digests).data)
            if near:
                signed.write(np.ascontiguousarray(outcome.signatures).data)
    if not count:
        return None
    _zeros(work / "repeated", count)
    maps = Maps()
    repeated = maps.open(work / "repeated", np.uint8)
    mark_exact(maps.open(work / "digests", np.uint64).reshape(count, 2), repeated, maps.release)
    exact = int(np.count_nonzero(repeated))
    ledger.note("exact duplicates, left out", exact)
    if near:
        _zeros(work / "keys", 8 * count)
        keys = maps.open(work / "keys", np.uint64)
        rows = maps.open(work / "signatures", np.uint32).reshape(count, -1)
        mark_near(rows, settings.similarity, repeated, keys, maps.release)
        ledger.note("near-duplicates, left out", int(np.count_nonzero(repeated)) - exact)
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
    """Create a file of zeros, allocated on the disk so that a full disk fails here, not later."""
    with path.open("wb") as stream:
        for start in range(0, size, 1 << 20):
            stream.write(bytes(min(1 << 20, size - start)))
