"""What the tokenizer tests share: official vocabularies, a small corpus, trained tokenizers."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bertsmith.tokenizer import FAMILIES, Tokenizer, train
from slow.fuzz_tokenizers import DATA, OFFICIAL, WORDS, reference, unpack

Pair = tuple[Tokenizer, Any]


@pytest.fixture(scope="session")
def official(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Unpack an official vocabulary, once."""
    if not DATA.is_dir():
        pytest.skip(f"{DATA} is not there: point BERTSMITH_DATA at the folder of data sets")
    folder = tmp_path_factory.mktemp("official")
    return cache(lambda name: unpack(name, folder))


@pytest.fixture(scope="session")
def both(
    official: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Pair]:
    """Open an official vocabulary with our reader and with transformers, once."""
    folder = tmp_path_factory.mktemp("reference")

    @cache
    def open_both(name: str) -> Pair:
        if OFFICIAL[name].file.endswith(".model"):
            pytest.importorskip("sentencepiece", reason="transformers needs it for .model files")
            pytest.importorskip("google.protobuf", reason="transformers needs it for .model files")
        return Tokenizer.load(official(name)), reference(name, folder)

    return open_both


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two thousand lines of words with punctuation, few words frequent and many rare."""
    rng = random.Random(1)
    weights = [1 / (1 + place) for place in range(len(WORDS))]
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    drawn = rng.choices(WORDS, weights, k=24_000)
    words = [word + rng.choice(["", "", "", ",", "."]) for word in drawn]
    lines = (" ".join(words[start : start + 12]) for start in range(0, len(words), 12))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.fixture(scope="session")
def trained(corpus: Path) -> Callable[[str], Tokenizer]:
    """Train a small tokenizer of a family, once."""
    return cache(
        lambda family: train([corpus], FAMILIES[family].kind, size=700, family=family, alphabet=80)
    )
