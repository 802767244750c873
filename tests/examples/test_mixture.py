"""Mixtures: exact shares of tokens, every sample in its turn, nothing to count on resuming."""

import random
from typing import Any

import numpy as np
import pytest

from bertsmith.corpus import Mixture
from bertsmith.examples import Crops, Examples, Masking, MixedSource, Pairs, Spans
from bertsmith.tokenizer import Tokenizer
from examples.memory import MemoryCorpus

KINDS: dict[str, Any] = {
    "spans": lambda corpus: Spans(corpus, length=32, seed=3),
    "joined": lambda corpus: Spans(corpus, length=32, seed=3, joined=True),
    "pairs": lambda corpus: Pairs(corpus, length=32, seed=3),
    "crops": lambda corpus: Crops(corpus, length=32, seed=3),
}
WEIGHTS = (6.0, 3.0, 1.0)


@pytest.fixture(scope="module")
def corpora(tokenizer: Tokenizer) -> list[Any]:
    """Three corpora whose documents have very different lengths."""
    draw = random.Random(1)
    ordinary = sorted(set(range(tokenizer.size)) - tokenizer.special_ids)

    def document(sentences: int) -> list[list[int]]:
        return [draw.choices(ordinary, k=draw.randint(5, 20)) for _ in range(sentences)]

    return [MemoryCorpus([document(n) for _ in range(60)], tokenizer) for n in (2, 12, 40)]


def mixed(corpora: list[Any], kind: str, weights: tuple[float, ...] = WEIGHTS) -> MixedSource:
    sources = [KINDS[kind](corpus) for corpus in corpora]
    return MixedSource(Mixture(corpora, weights), sources, seed=3)


@pytest.mark.parametrize("kind", KINDS)
def test_shares_of_tokens_are_those_of_the_weights(corpora: list[Any], kind: str) -> None:
    source = mixed(corpora, kind)
    plan = source.plan(np.arange(20_000))
    tokens = np.bincount(plan.corpora, plan.lengths)
    np.testing.assert_allclose(tokens / tokens.sum(), np.array(WEIGHTS) / 10, rtol=0.01)


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (1.0, 1e-3, 1e-3), (0.2, 97.0, 2.8)])
def test_counts_are_exact_after_every_block(corpora: list[Any], weights: tuple[float, ...]) -> None:
    """Of any number of blocks each corpus has its share, to one sample for each of them."""
    source = mixed(corpora, "spans", weights)
    parts = source.plan(np.arange(4096 * source.block)).corpora.reshape(-1, source.block)
    rates = source.rates[:, 0] / source.rates.sum()
    for number, rate in enumerate(rates):
        counts = (parts == number).sum(1).cumsum()
        expected = rate * source.block * np.arange(1, len(counts) + 1)
        assert np.abs(counts - expected).max() <= len(weights)
    far = source.plan(np.arange(10**9, 10**9 + source.block)).corpora
    assert np.abs(np.bincount(far, minlength=3) - rates * source.block).max() <= 2


def test_every_corpus_is_read_in_its_own_order_without_gaps(corpora: list[Any]) -> None:
    """The samples of a corpus are its first ones, each once: its epochs are as without others."""
    source = mixed(corpora, "spans")
    samples = 1024 * source.block
    plan = source.plan(np.arange(samples))
    for number, (part, own) in enumerate(plan.plans):
        assert part == number
        alone = KINDS["spans"](corpora[number]).plan(np.arange(len(own.starts)))
        assert sorted(zip(own.starts.tolist(), own.lengths.tolist(), strict=True)) == sorted(
            zip(alone.starts.tolist(), alone.lengths.tolist(), strict=True)
        )


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_does_not_depend_on_its_batch(corpora: list[Any], kind: str) -> None:
    source = mixed(corpora, kind)
    together = source.make(source.plan(np.arange(64)))
    rows = np.split(together.ids, np.cumsum(together.lengths)[:-1])
    for start in range(0, 64, source.group):
        samples = np.arange(start, start + source.group)
        alone = source.make(source.plan(samples))
        assert alone.ids.tolist() == np.concatenate([rows[n] for n in samples]).tolist()
        if alone.labels is not None and together.labels is not None:
            assert alone.labels.tolist() == together.labels[samples].tolist()


def test_pairs_of_two_corpora_are_different_pairs(corpora: list[Any]) -> None:
    source = mixed(corpora, "crops")
    made = source.make(plan := source.plan(np.arange(200)))
    assert made.pairs is not None
    assert made.labels is not None
    assert made.pairs[:, 0].tolist() == [n // 2 for n in range(200)]
    documents = [set(made.labels[plan.corpora == part].tolist()) for part in range(3)]
    assert not documents[0] & documents[1]
    assert not documents[1] & documents[2]


def test_a_step_counts_the_tokens_of_each_corpus(corpora: list[Any], tokenizer: Tokenizer) -> None:
    source = mixed(corpora, "spans")
    examples = Examples(source, Masking(tokenizer, seed=0))
    step = examples.plan(96, tokens=2000, micro_tokens=500, ranks=2)
    plan = source.plan(step.samples)
    assert list(step.corpora) == np.bincount(plan.corpora, plan.lengths).tolist()
    assert examples.plan(96, tokens=2000, micro_tokens=2000).corpora == step.corpora
