"""Settings of `prepare`: those that determine the tokens, and where the work runs."""

from __future__ import annotations

from dataclasses import dataclass

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.settings import setting

DOCUMENTS = ("blank-lines", "files")
DUPLICATES = ("exact", "near")
CONTAMINATED = ("remove", "count")
LINES = "lines"  # instead of a language: every line is one sentence
SPLITS = ("train", "held_out")


@dataclass(frozen=True)
class CorpusSettings:
    """How documents are read, cleaned, chosen and stored."""

    documents: str = setting(
        "blank-lines", "Where documents of plain text end: at blank-lines, or with files."
    )
    text_field: str = setting("text", "Text column of .jsonl and .parquet files.")
    sentences: str = setting("en", "Language of the sentence splitter, or `lines`.")
    repair: bool = setting(False, "Repair broken Unicode with ftfy.")
    min_length: int = setting(1, "Leave out documents with fewer characters.")
    max_length: int | None = setting(None, "Leave out documents with more characters.")
    language: str | None = setting(None, "Keep only documents in this language: en, fr, ...")
    duplicates: str | None = setting(None, "Remove duplicate documents: exact, or also near.")
    similarity: float = setting(0.8, "Jaccard similarity from which documents are near-duplicates.")
    decontaminate: tuple[str, ...] = setting(
        (),
        "Benchmark file whose texts are looked for in the documents; repeat it for several.",
        written=list[str],
    )
    overlap: int = setting(13, "Words in a row that a document shares with a benchmark text.")
    contaminated: str = setting("remove", "Documents with benchmark texts: remove or count.")
    held_out: float = setting(0.01, "Fraction of documents in the held-out split.")
    seed: int = setting(0, "Seed of the held-out split.")
    piece_bytes: int = 4 << 20  # of input in one piece of work
    shard_tokens: int = 1 << 28

    def check(self) -> None:
        """Raise an error for invalid values."""
        choices = {
            "documents": DOCUMENTS,
            "duplicates": (None, *DUPLICATES),
            "contaminated": CONTAMINATED,
        }
        for name, known in choices.items():
            if (value := getattr(self, name)) not in known:
                words = " or ".join(filter(None, known))
                raise BertsmithError(f"{setting_name(name)} can be {words}, not {value!r}")
        self._check_ranges(
            overlap=(5 <= self.overlap <= 100, "from 5 to 100 words"),
            held_out=(0 <= self.held_out < 1, "at least 0 and less than 1"),
            similarity=(0.5 <= self.similarity <= 1, "from 0.5 to 1"),
            min_length=(self.min_length >= 0, "at least 0"),
            seed=(0 <= self.seed < 1 << 64, "at least 0 and less than 2 ** 64"),
        )
        if self.max_length is not None and self.max_length < max(1, self.min_length):
            raise BertsmithError(
                f"no document has {self.min_length} to {self.max_length} characters"
            )
        if self.piece_bytes < 1 or self.shard_tokens < 1:
            raise BertsmithError("pieces and shards must hold at least one byte and one token")

    def _check_ranges(self, **ranges: tuple[bool, str]) -> None:
        for name, (valid, values) in ranges.items():
            if not valid:
                value = getattr(self, name)
                raise BertsmithError(f"{setting_name(name)} must be {values}, not {value}")


@dataclass(frozen=True)
class EngineSettings:
    """Where the work runs; the result does not depend on it."""

    workers: int | None = setting(None, "Number of worker processes; one per core by default.")
    engine: str = setting("local", "Where to run: local or ray.")
