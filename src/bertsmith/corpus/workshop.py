"""One piece of work: raw bytes → documents, cleaned and filtered → sentences → token ids."""

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any, Self

import numpy as np

from bertsmith.corpus.documents import Document, lines_of, read_documents
from bertsmith.corpus.duplicates import signatures
from bertsmith.corpus.encode import Ints, LineEncoder
from bertsmith.corpus.overlap import Benchmarks, Overlap
from bertsmith.corpus.pieces import Piece
from bertsmith.corpus.split import LONGEST_LINE, Splitter, chunks
from bertsmith.errors import BertsmithError
from bertsmith.files import import_package
from bertsmith.ledger import Ledger
from bertsmith.settings.corpus import CorpusSettings
from bertsmith.tokenizer import SPELLED

BATCH = 1 << 18  # characters that go through the tokenizer at once


@dataclass(frozen=True)
class Outcome:
    """The documents of one piece, as tokens."""

    tokens: Ints  # (T,)
    sentence_lengths: Ints  # (S,) tokens in each sentence, never 0
    document_sentences: Ints  # (D,) sentences in each document, never 0
    digests: Ints  # (D, 2) uint64: of each document's text, and of the seed
    signatures: Ints  # (D, P) uint32, or (D, 0) without near-duplicate detection
    counts: dict[str, int]  # the ledger
    matched: Ints = field(default_factory=lambda: np.zeros(0, np.uint32))  # benchmark texts

    def to_bytes(self) -> bytes:
        """Serialise the outcome as an .npz file, which has checksums."""
        counts = np.frombuffer(json.dumps(self.counts).encode(), np.uint8)
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, **{**vars(self), "counts": counts})
        return stream.getvalue()

    @classmethod
    def from_bytes(cls, stream: Any) -> Self:
        """Read an outcome from a file or stream; zipfile.BadZipFile if it is damaged."""
        with np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        counts = json.loads(arrays.pop("counts").tobytes())
        return cls(**arrays, counts=counts)


@dataclass(frozen=True)
class TextJob:
    """How pieces of work are processed, as plain values."""

    settings: CorpusSettings
    definition: str  # tokenizer.json, which reads special tokens that a text spells as text
    special: Sequence[str]  # those tokens
    unknown: int | None
    dtype: str
    benchmarks: str = ""  # what documents are searched for, packed

    @property
    def main(self) -> str:
        """The Python code of a worker process."""
        return "from bertsmith.corpus.worker import main; main()"

    def start(self) -> Callable[[Piece], bytes]:
        """Prepare a worker; returns what it does with each piece."""
        workshop = Workshop(self)
        return lambda piece: workshop.process(piece).to_bytes()

    def packed(self, piece: Piece) -> tuple[dict[str, Any], list[bytes]]:
        """A piece as a message: its description, and the bytes of its parts."""
        parts = [asdict(part) for part in piece.parts]
        data = [part.pop("data") for part in parts]
        return {"number": piece.number, "parts": parts}, data

    def environment(self, number: int) -> dict[str, str]:
        """One thread each: there are as many workers as cores."""
        return {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}

    def needs(self, free: Mapping[str, float]) -> dict[str, float]:
        """A CPU of a Ray cluster."""
        return {"num_cpus": 1}


class Workshop:
    """Processes pieces of work; created once per worker."""

    def __init__(self, job: TextJob) -> None:
        self.settings, self.unknown = job.settings, job.unknown
        self.cleaner = Cleaner(job.settings)
        self.splitter = Splitter(job.settings.sentences)
        self.encode = LineEncoder(job.definition)
        self.special = re.compile("|".join(map(re.escape, job.special)) or r"(?!)")
        self.dtype = np.dtype(job.dtype)
        self.overlap: Overlap | None = None
        if job.benchmarks:
            removes = job.settings.contaminated == "remove"
            self.overlap = Overlap(Benchmarks.unpacked(job.benchmarks), removes)

    def process(self, piece: Piece) -> Outcome:
        """Process a piece of work; the outcome depends on the piece and the settings alone."""
        ledger = Ledger()
        digests: list[bytes] = []
        batches = [self._encode(*batch, ledger) for batch in self._batches(piece, digests, ledger)]
        tokens, lengths, owners = (
            np.concatenate([np.zeros(0, dtype), *(batch[part] for batch in batches)], dtype=dtype)
            for part, dtype in enumerate((self.dtype, np.dtype(np.uint32), np.dtype(np.int64)))
        )
        counts = np.bincount(owners, minlength=len(digests))  # sentences of each document
        full = counts > 0
        ledger.note("documents without a token, left out", int((~full).sum()))
        if self.unknown is not None:
            known = tokens != self.unknown
            ledger.note("unknown tokens", len(known) - int(known.sum()))
            # Unknown tokens are never predicted, so such documents have no targets.
            blank = np.bincount(np.repeat(owners, lengths), known, len(digests)) == 0
            ledger.note("documents of unknown tokens only, left out", int((full & blank).sum()))
            kept = ~blank[owners]  # (S,)
            tokens, lengths = tokens[np.repeat(kept, lengths)], lengths[kept]
            full &= ~blank
        marks = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)[full]
        counts = counts[full].astype(np.uint32)
        signed = signatures(tokens, lengths, counts, near=self.settings.duplicates == "near")
        matched = np.zeros(0, np.uint32)
        if self.overlap is not None:
            matched = np.unique(np.concatenate([matched, *self.overlap.texts]))
            self.overlap.texts.clear()
        return Outcome(tokens, lengths, counts, marks, signed, dict(ledger.counts), matched)

    def _batches(
        self, piece: Piece, digests: list[bytes], ledger: Ledger
    ) -> Iterator[tuple[list[str], list[int]]]:
        """Yield batches of lines of clean documents, and the document of each line."""
        lines: list[str] = []
        owners: list[int] = []
        size = 0
        key = self.settings.seed.to_bytes(8, "little")
        for document in self._kept(piece, ledger):
            content = "\n".join(document).encode()
            digests.append(blake2b(content, digest_size=16, key=key).digest())
            for line in document:
                for chunk in chunks(line, LONGEST_LINE, "lines", ledger):
                    lines.append(chunk)
                    owners.append(len(digests) - 1)
                    size += len(chunk)
                    if size >= BATCH:
                        yield lines, owners
                        lines, owners, size = [], [], 0
        if lines:
            yield lines, owners

    def _kept(self, piece: Piece, ledger: Ledger) -> Iterator[Document]:
        """Clean documents, without those that hold benchmark texts if these are removed."""
        if self.overlap is None:
            yield from self._documents(piece, ledger)
            return
        held: list[Document] = []
        size = 0
        for document in self._documents(piece, ledger):
            held.append(document)
            size += sum(map(len, document))
            if size >= BATCH:
                yield from self.overlap.filtered(held, ledger)
                held, size = [], 0
        if held:
            yield from self.overlap.filtered(held, ledger)

    def _documents(self, piece: Piece, ledger: Ledger) -> Iterator[Document]:
        for part in piece.parts:
            for document in read_documents(part, self.settings.text_field, ledger):
                ledger.note("documents read")
                if clean := self.cleaner.clean(document, ledger):
                    yield clean

    def _encode(
        self, lines: list[str], owners: list[int], ledger: Ledger
    ) -> tuple[Ints, Ints, Ints]:
        """Return the ids of lines, and length and document of each non-empty sentence."""
        ledger.note(SPELLED, sum(len(self.special.findall(line)) for line in lines))
        sentences = self.splitter.split(lines, ledger)
        ids, lengths = self.encode(sentences)
        full = lengths > 0
        ledger.note("sentences without a token, left out", int((~full).sum()))
        whose = np.repeat(owners, list(map(len, sentences)))
        return ids.astype(self.dtype), lengths[full].astype(np.uint32), whose[full]


SAMPLE = 2000  # characters from which the language is detected


class Cleaner:
    """Repairs and filters documents according to the settings."""

    def __init__(self, settings: CorpusSettings) -> None:
        self.settings = settings
        self.repair: Callable[[str], str] | None = None
        if settings.repair:
            self.repair = import_package("ftfy", "Unicode is repaired by ftfy").fix_text
        self.language = _detector(settings.language) if settings.language else None

    def clean(self, document: Document, ledger: Ledger) -> Document | None:
        """Return the document as it is stored, or None if a filter removes it."""
        if self.repair is not None:
            text = "\n".join(document)
            repaired = self.repair(text)
            if repaired != text:
                ledger.note("documents whose Unicode was repaired")
                document = lines_of(repaired)
        length = sum(map(len, document)) + len(document) - 1
        if length < self.settings.min_length:
            ledger.note(f"documents shorter than {self.settings.min_length:,} characters, left out")
            return None
        if self.settings.max_length is not None and length > self.settings.max_length:
            ledger.note(f"documents longer than {self.settings.max_length:,} characters, left out")
            return None
        if self.language is not None and self.language(document) != self.settings.language:
            ledger.note(f"documents not in the language {self.settings.language}, left out")
            return None
        return document


def check_extras(settings: CorpusSettings) -> None:
    """Raise an error if a library is not installed, or does not support the language."""
    Cleaner(settings)
    if settings.duplicates == "near":
        import_package("rensa", "near-duplicates are found by rensa")


def _detector(wanted: str) -> Callable[[Document], str]:
    langid = import_package("py3langid.langid", "language detection needs py3langid", "py3langid")
    identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE)
    if wanted not in identifier.labels:
        known = ", ".join(sorted(identifier.labels))
        raise BertsmithError(f"the language {wanted!r} is unknown; known: {known}")

    def detect(document: Document) -> str:
        text = "".join(f"{line}\n" for line in document[:SAMPLE])  # no line is empty
        return str(identifier.classify(text[:SAMPLE])[0])

    return detect
