"""What word frequencies alone reach, against a computation by hand."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bertsmith.corpus import Corpus, unigram
from bertsmith.corpus.unigram import unigram_cross_entropy


def tokens_of(corpus: Corpus) -> list[int]:
    return corpus.gather(np.array([0]), np.array([corpus.tokens])).tolist()


def by_hand(train: list[int], scored: list[int], size: int) -> float:
    counts = Counter(train)
    total = sum(-math.log((counts[token] + 1) / (len(train) + size)) for token in scored)
    return total / len(scored)


@pytest.fixture(scope="module")
def splits(prepared: Path) -> tuple[Corpus, Corpus]:
    return Corpus.open(prepared), Corpus.open(prepared, "held_out")


@pytest.mark.parametrize("block", [100, 2**16])
def test_by_hand(
    splits: tuple[Corpus, Corpus], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unigram, "BLOCK", block)
    train, held_out = splits
    size = train.tokenizer.size
    own, held = tokens_of(train), tokens_of(held_out)
    assert unigram_cross_entropy(train, held_out) == pytest.approx(by_hand(own, held, size))
    assert unigram_cross_entropy(train, None) == pytest.approx(by_hand(own, own, size))
    assert unigram_cross_entropy(train, None) < math.log(size)


def test_large_corpora_are_sampled_from_end_to_end(
    splits: tuple[Corpus, Corpus], monkeypatch: pytest.MonkeyPatch
) -> None:
    train, held_out = splits
    monkeypatch.setattr(unigram, "BLOCK", 64)
    blocks = list(unigram._blocks(train.tokens, 1000))
    assert [length for _, length in blocks] == [64] * 15
    starts = [start for start, _ in blocks]
    assert starts[0] == 0
    assert starts[-1] + 64 == train.tokens
    assert np.ptp(np.diff(starts)) <= 1
    size, row = train.tokenizer.size, tokens_of(train)
    own = [token for start in starts for token in row[start : start + 64]]
    held = tokens_of(held_out)
    kept = [
        token
        for start, length in unigram._blocks(held_out.tokens, 1000)
        for token in held[start : start + length]
    ]
    assert unigram_cross_entropy(train, held_out, 1000) == pytest.approx(by_hand(own, kept, size))


@pytest.mark.parametrize("most", [1, 63, 64, 65])
def test_few_tokens(splits: tuple[Corpus, Corpus], most: int) -> None:
    blocks = list(unigram._blocks(splits[0].tokens, most))
    assert sum(length for _, length in blocks) == most
    assert math.isfinite(unigram_cross_entropy(*splits, most=most))
