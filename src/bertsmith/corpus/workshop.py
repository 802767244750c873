"""A piece of work done: raw bytes → documents → sentences → token ids, and what was left out."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from bertsmith.corpus.clean import Cleaner
from bertsmith.corpus.documents import Document, read_documents
from bertsmith.corpus.duplicates import signatures
from bertsmith.corpus.encode import Ints, encoder
from bertsmith.corpus.pieces import Piece
from bertsmith.corpus.settings import Settings
from bertsmith.corpus.split import Splitter
from bertsmith.ledger import Ledger
from bertsmith.tokenizer.guard import guarded

BATCH = 1 << 18  # characters that go through the tokenizer at once


@dataclass(frozen=True)
class Outcome:
    """The documents of one piece, as tokens."""

    tokens: Ints  # (T,)
    sentence_lengths: Ints  # (S,) tokens in each sentence, never 0
    document_sentences: Ints  # (D,) sentences in each document, never 0
    digests: Ints  # (D, 2) uint64: of each document's text, and of the seed
    signatures: Ints  # (D, P) uint32, or (D, 0) where near-duplicates stay
    counts: dict[str, int]  # the ledger

    def to_bytes(self) -> bytes:
        """All of it as an .npz file, which carries checksums."""
        said = np.frombuffer(json.dumps(self.counts).encode(), np.uint8)
        stream = io.BytesIO()
        np.savez(
            stream,
            allow_pickle=False,
            tokens=self.tokens,
            sentence_lengths=self.sentence_lengths,
            document_sentences=self.document_sentences,
            digests=self.digests,
            signatures=self.signatures,
            counts=said,
        )
        return stream.getvalue()

    @classmethod
    def from_bytes(cls, stream: Any) -> Outcome:
        """Read it back from a file or a stream; zipfile.BadZipFile where it is damaged."""
        with np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        counts = json.loads(arrays.pop("counts").tobytes())
        return cls(**arrays, counts=counts)


class Workshop:
    """Everything that a worker needs, made once."""

    def __init__(
        self, settings: Settings, definition: str, unknown: int | None, dtype: str
    ) -> None:
        self.settings = settings
        self.cleaner = Cleaner(settings)
        self.splitter = Splitter(settings.sentences)
        self.encode = encoder(definition)
        self.unknown = unknown
        self.dtype = np.dtype(dtype)

    def process(self, piece: Piece) -> Outcome:
        """Do a piece of work; the outcome depends on nothing else."""
        ledger = Ledger()
        digests: list[bytes] = []
        found = [self._encode(batch, ledger, digests) for batch in self._batches(piece, ledger)]
        tokens = _joined([ids for ids, _, _ in found], self.dtype)
        lengths = _joined([lengths for _, lengths, _ in found], np.dtype(np.uint32))
        counts = _joined([counts for _, _, counts in found], np.dtype(np.uint32))
        if self.unknown is not None:
            ledger.note("unknown tokens", int((tokens == self.unknown).sum()))
        marks = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)
        signed = signatures(tokens, lengths, counts, near=self.settings.duplicates == "near")
        return Outcome(tokens, lengths, counts, marks, signed, dict(ledger.counts))

    def _batches(self, piece: Piece, ledger: Ledger) -> Iterator[list[Document]]:
        """Clean documents, as many as one look-up of words is worth."""
        held: list[Document] = []
        size = 0
        for part in piece.parts:
            for document in read_documents(part, self.settings.text_field, ledger):
                ledger.note("documents read")
                clean = self.cleaner.clean(document, ledger)
                if clean is None:
                    continue
                held.append(clean)
                size += sum(map(len, clean))
                if size >= BATCH:
                    yield held
                    held, size = [], 0
        if held:
            yield held

    def _encode(
        self, documents: list[Document], ledger: Ledger, digests: list[bytes]
    ) -> tuple[Ints, Ints, Ints]:
        """Ids, lengths of sentences and numbers of sentences of documents."""
        sentences: list[str] = []
        ends = []
        with guarded("a line cannot be split into sentences"):
            for document in documents:
                for line in document:
                    sentences += self.splitter.split(line, ledger)
                ends.append(len(sentences))
        ids, lengths = self.encode(sentences)
        ledger.note("sentences without a token, left out", int((lengths == 0).sum()))
        full = np.concatenate([[0], (lengths > 0).cumsum()])
        counts = np.diff(full[ends], prepend=0)
        key = self.settings.seed.to_bytes(8, "little")
        for document, count in zip(documents, counts, strict=True):
            if count:
                text = "\n".join(document).encode()
                digests.append(blake2b(text, digest_size=16, key=key).digest())
        ledger.note("documents without a token, left out", int((counts == 0).sum()))
        return ids, lengths[lengths > 0], counts[counts > 0]


def _joined(arrays: list[Ints], dtype: np.dtype[Any]) -> Ints:
    return np.concatenate(arrays).astype(dtype) if arrays else np.zeros(0, dtype)
