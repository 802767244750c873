"""A corpus in memory, with what the examples need of one."""

from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.tokenizer import Tokenizer


class MemoryCorpus:
    """Documents as lists of sentences, each a list of ids."""

    def __init__(self, documents: list[list[list[int]]], tokenizer: Tokenizer) -> None:
        self.directory, self.tokenizer = Path("memory"), tokenizer
        sentences = [sentence for document in documents for sentence in document]
        self.row = np.array([token for sentence in sentences for token in sentence], dtype=np.int64)
        sizes = [len(sentence) for sentence in sentences]
        self.sentence_starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        counts = [len(document) for document in documents]
        self.document_sentences = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.document_starts = self.sentence_starts[self.document_sentences]
        self.tokens, self.sentences = len(self.row), len(sentences)
        self.documents, self.split = len(documents), "train"

    def gather(self, starts: Any, lengths: Any) -> Any:
        parts = [self.row[s : s + n] for s, n in zip(starts, lengths, strict=True)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def fingerprint(self) -> str:
        return "memory"
