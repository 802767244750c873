"""A tiny model that reads 64 tokens."""

from pathlib import Path

import pytest

from bertsmith import create
from bertsmith.checkpoint import Sentence, save
from tasks.words import tokenizer


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    words = tokenizer("bert")
    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    checkpoint = create("bert-tiny", vocab_size=words.size, max_position_embeddings=64, **small)
    save(folder, checkpoint, words, Sentence())
    return folder
