"""Mixture: several corpora of one vocabulary, each with a share of the tokens that are read."""

from collections.abc import Sequence

from bertsmith.corpus.corpus import Corpus
from bertsmith.errors import BertsmithError
from bertsmith.store import fingerprint


class Mixture:
    """Several corpora that a run reads together; `weights` are their shares, up to a factor."""

    def __init__(self, corpora: Sequence[Corpus], weights: Sequence[float]) -> None:
        first, *others = corpora
        for other in others:
            demand_same_vocabulary(first, other)
        self.parts = tuple(zip(corpora, (w / sum(weights) for w in weights), strict=True))
        self.split, self.tokenizer = first.split, first.tokenizer
        self.directory = " + ".join(str(corpus.directory) for corpus in corpora)
        self.tokens = sum(corpus.tokens for corpus in corpora)
        self.documents = sum(corpus.documents for corpus in corpora)

    def fingerprint(self) -> str:
        """A SHA-256 sum that identifies the corpora and their shares."""
        return fingerprint([(corpus.fingerprint(), share) for corpus, share in self.parts])


def demand_same_vocabulary(first: Corpus | Mixture, other: Corpus) -> None:
    """Refuse a corpus that was prepared with another tokenizer."""
    if other.tokenizer.vocabulary() != first.tokenizer.vocabulary():
        raise BertsmithError(
            f"{other.directory}: its vocabulary is not that of {first.directory}; prepare both"
            " with the same tokenizer"
        )
