"""Settings of `prepare` that determine the tokens."""

from __future__ import annotations

from dataclasses import dataclass

from bertsmith.errors import BertsmithError

DOCUMENTS = ("blank-lines", "files")
DUPLICATES = ("exact", "near")
LINES = "lines"  # instead of a language: every line is one sentence
SPLITS = ("train", "held_out")


@dataclass(frozen=True)
class Settings:
    """How documents are read, cleaned, chosen and stored."""

    documents: str = "blank-lines"  # where documents of plain text end; "files": each file is one
    text_field: str = "text"  # of jsonl records and parquet tables
    sentences: str = "en"  # the language whose rules split lines into sentences, or "lines"
    repair: bool = False  # repair broken Unicode
    min_length: int = 1  # characters of a document
    max_length: int | None = None
    language: str | None = None  # keep documents in this language only
    duplicates: str | None = None
    similarity: float = 0.8  # Jaccard similarity from which documents are near-duplicates
    held_out: float = 0.01
    seed: int = 0
    piece_bytes: int = 4 << 20  # of input in one piece of work
    shard_tokens: int = 1 << 28

    def check(self) -> None:
        """Raise an error for invalid values."""
        if self.documents not in DOCUMENTS:
            _refuse(f"documents can be {' or '.join(DOCUMENTS)}, not {self.documents!r}")
        if self.duplicates is not None and self.duplicates not in DUPLICATES:
            _refuse(f"duplicates can be {' or '.join(DUPLICATES)}, not {self.duplicates!r}")
        if not 0 <= self.held_out < 1:
            _refuse(f"held_out must be at least 0 and less than 1, not {self.held_out}")
        if not 0.5 <= self.similarity <= 1:
            _refuse(f"similarity must be from 0.5 to 1, not {self.similarity}")
        if self.min_length < 0:
            _refuse(f"min_length must be at least 0, not {self.min_length}")
        if self.max_length is not None and self.max_length < max(1, self.min_length):
            _refuse(f"no document has {self.min_length} to {self.max_length} characters")
        if not 0 <= self.seed < 1 << 64:
            _refuse(f"seed must be at least 0 and less than 2 ** 64, not {self.seed}")
        if self.piece_bytes < 1 or self.shard_tokens < 1:
            _refuse("pieces and shards must hold at least one byte and one token")


def _refuse(message: str) -> None:
    raise BertsmithError(message)
