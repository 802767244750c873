"""What the corpus tests share: a small tokenizer, and a small corpus that is prepared once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertsmith.corpus import prepare
from bertsmith.tokenizer import Tokenizer
from corpus.texts import documents, write
from tasks.words import tokenizer


@pytest.fixture(scope="session")
def words() -> Tokenizer:
    """A small WordPiece tokenizer."""
    return tokenizer("bert")


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory, words: Tokenizer) -> Path:
    """Sixty documents in many shards."""
    folder = tmp_path_factory.mktemp("small")
    source = write(folder / "a.txt", documents(60))
    prepare([source], words, folder / "out", held_out=0.2, shard_tokens=500, workers=0)
    return folder / "out"
