"""A small vocabulary and a small corpus."""

import random

import pytest

from bertsmith.tokenizer import Tokenizer, train
from examples.memory import MemoryCorpus


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "text.txt"
    words = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in ("n", "rt", "sting")]
    path.write_text("\n".join(" ".join(words) for _ in range(3)))
    return train([path], "wordpiece", size=160, min_frequency=1)


@pytest.fixture(scope="session")
def corpus(tokenizer: Tokenizer) -> MemoryCorpus:
    """200 documents of 1 to 12 sentences of 1 to 30 tokens, all of them different places."""
    draw = random.Random(0)
    ordinary = sorted(set(range(tokenizer.size)) - tokenizer.special_ids)
    documents = [
        [draw.choices(ordinary, k=draw.randint(1, 30)) for _ in range(draw.randint(1, 12))]
        for _ in range(200)
    ]
    return MemoryCorpus(documents, tokenizer)
