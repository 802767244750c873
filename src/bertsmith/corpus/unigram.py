"""The unigram entropy: the loss of a model that knows only token frequencies."""

from collections.abc import Iterator

import numpy as np

from bertsmith.corpus import Corpus, Mixture
from bertsmith.corpus.encode import Ints

BLOCK = 2**16  # tokens read at once


def unigram_cross_entropy(
    train: Corpus | Mixture, held_out: Corpus | Mixture | None = None, most: int = 2**24
) -> float:
    """Nats per token of held-out text under the unigram distribution of the training text.

    Counts are smoothed by adding one for every token of the vocabulary. Without a held-out split
    the training text itself is evaluated. Of larger corpora, evenly spaced blocks with `most`
    tokens in total are read.
    """
    counts = token_counts(train, most)
    scored = counts if held_out is None else token_counts(held_out, most)
    log_probabilities = np.log(counts + 1.0) - np.log(counts.sum() + len(counts))
    return float(-(scored @ log_probabilities) / scored.sum())


def token_counts(corpus: Corpus | Mixture, most: int = 2**24) -> Ints:
    """Return the count of each token of the vocabulary; in `most` tokens of larger corpora.

    Those of a mixture are counted in each of its corpora, and weighted by its share.
    """
    size = corpus.tokenizer.size
    if isinstance(corpus, Mixture):
        counted = [(token_counts(part, most), share) for part, share in corpus.parts]
        return sum(counts * (share * corpus.tokens / counts.sum()) for counts, share in counted)
    counts = np.zeros(size, np.int64)
    for start, length in _blocks(corpus.tokens, most):
        counts += np.bincount(corpus.gather(np.array([start]), np.array([length])), minlength=size)
    return counts


def _blocks(tokens: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield (start, length) of the blocks to read: everything, or evenly spaced blocks."""
    if tokens <= most:
        yield from ((start, min(BLOCK, tokens - start)) for start in range(0, tokens, BLOCK))
        return
    length = min(BLOCK, most)
    count = most // length
    for number in range(count):
        yield (tokens - length) * number // max(count - 1, 1), length
