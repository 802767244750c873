"""Masking: which tokens are predicted, and their replacements in the input."""

from typing import Literal, NamedTuple

import numpy as np

from bertsmith.errors import BertsmithError
from bertsmith.examples.draw import Numbers, below, uniform
from bertsmith.examples.sources import Sequences
from bertsmith.tokenizer import Tokenizer

Unit = Literal["token", "word", "span"]


class Masked(NamedTuple):
    """A row of tokens of which some are masked."""

    ids: Numbers  # (T,) the input of the model
    rows: Numbers  # (M,) the places to predict, in order
    targets: Numbers  # (M,) the original ids there


class Masking:
    """Mask a fraction of each sequence: tokens, whole words, or spans of words.

    Of the selected tokens, a fraction `mask` becomes the mask token, a fraction `random` a random
    token, and the rest is unchanged. Tokens, words or spans are drawn in random order until the
    rate is reached; the last span is cut between two words, and the last word is kept or dropped at
    random, so that the rate is correct on average. Every sequence with text has a target: if the
    first word is longer than the rate allows, a shortest word may replace it. Special tokens are
    never selected. Draws depend on the sample's number, so a text is masked differently in each
    epoch. With `weights` (a number for each id), single tokens are drawn with probabilities in
    these proportions, without replacement.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        rate: float = 0.15,
        mask: float = 0.8,
        random: float = 0.1,
        unit: Unit = "token",
        span: float = 5.0,
        longest_span: int = 10,
        weights: Numbers | None = None,
        seed: int = 0,
    ) -> None:
        if tokenizer.mask_id is None:
            raise BertsmithError("this tokenizer has no mask token")
        if not 0 < rate < 1 or mask < 0 or random < 0 or mask + random > 1:
            fractions = f"rate {rate}, mask {mask}, random {random}"
            raise BertsmithError(f"masking: {fractions} are not valid fractions")
        if span < 1 or longest_span < 1:
            raise BertsmithError("masking: a span must have at least one word")
        if weights is not None and unit != "token":
            raise BertsmithError(f"masking: weights are for single tokens, not for a {unit}")
        self.rate, self.mask, self.random, self.unit = rate, mask, random, unit
        self.span, self.longest_span, self.seed = span, longest_span, seed
        self.weights, self.mask_id = weights, tokenizer.mask_id
        self.special = np.zeros(tokenizer.size, dtype=bool)
        self.special[sorted(tokenizer.special_ids)] = True
        self.ordinary = np.flatnonzero(~self.special)
        self.opens, self.parts = word_marks(tokenizer)

    def __call__(self, sequences: Sequences, samples: Numbers) -> Masked:
        """Mask tokens of the sequences with these sample numbers."""
        ids = sequences.ids
        owner = np.repeat(np.arange(len(samples)), sequences.lengths)
        begins = np.cumsum(sequences.lengths) - sequences.lengths
        # A token's key is its sample and its place there, whatever batch it is in.
        token = (self.seed, samples[owner], np.arange(len(ids)) - begins[owner])
        free = ~self.special[ids]
        words, spans = self._units(ids, owner, free, token)
        rows = self._choose(ids, words, spans, owner, free, samples)
        # A span is masked, replaced or kept as a whole.
        first = np.searchsorted(spans, spans[rows]) if self.unit == "span" else rows
        fate = uniform(self.seed, *(key[first] for key in token[1:]), "fate")
        drawn = below(len(self.ordinary), self.seed, *(key[rows] for key in token[1:]), "other")
        cases = [fate < self.mask, fate < self.mask + self.random]
        seen = ids.copy()
        seen[rows] = np.select(cases, [self.mask_id, self.ordinary[drawn]], ids[rows])
        return Masked(seen, rows, ids[rows])

    def _units(
        self, ids: Numbers, owner: Numbers, free: Numbers, token: tuple[int, Numbers, Numbers]
    ) -> tuple[Numbers, Numbers]:
        """The numbers of each token's word and span, rising along the row.

        Words are single tokens, and spans single words, where no longer units are asked for.
        """
        if self.unit == "token":
            return np.arange(len(ids)), np.arange(len(ids))
        opens = self.opens[ids] | ~free
        opens[1:] |= self.parts[ids[:-1]] | ~free[:-1] | (owner[1:] != owner[:-1])
        opens[:1] = True
        words = np.cumsum(opens) - 1
        if self.unit == "word":
            return words, words
        first = np.flatnonzero(opens)
        # A span continues with a fixed probability after each word, so its length is geometric.
        ends = uniform(self.seed, *(key[first] for key in token[1:]), "end") < 1 / self.span
        starts = np.ones(len(first), dtype=bool)
        starts[1:] = ends[:-1] | ~free[first[1:]] | ~free[first[:-1]]
        starts[1:] |= owner[first[1:]] != owner[first[:-1]]
        spans = np.cumsum(starts) - 1
        place = np.arange(len(first)) - np.flatnonzero(starts)[spans]
        starts |= place % self.longest_span == 0
        return words, (np.cumsum(starts) - 1)[words]

    def _choose(
        self,
        ids: Numbers,
        words: Numbers,
        spans: Numbers,
        owner: Numbers,
        free: Numbers,
        samples: Numbers,
    ) -> Numbers:
        """Return the rows of the selected words."""
        places = np.flatnonzero(free)
        if not len(places):
            return places
        word, first, sizes = np.unique(words[places], return_index=True, return_counts=True)
        whose = owner[places[first]]
        place = np.arange(len(word)) - np.searchsorted(whose, whose)
        counts = np.bincount(whose, weights=sizes, minlength=len(samples))
        wanted = np.maximum(counts * self.rate, np.minimum(counts, 1))[whose]
        keys = (self.seed, samples[whose])
        chance = uniform(*keys, place, "last")
        if self.unit == "span":
            span = np.unique(spans[places[first]], return_inverse=True)[1]
            order = self._by_spans(span, whose, sizes, wanted, keys)
        elif self.weights is not None:  # exponential arrival times at these rates
            arrival = -np.log1p(-uniform(*keys, place, "order")) / self.weights[ids[places[first]]]
            order = np.lexsort((arrival, whose))
        else:
            order = np.argsort(whose + uniform(*keys, place, "order"), kind="stable")
        whose, sizes, word = whose[order], sizes[order], word[order]
        wanted, chance = wanted[order], chance[order]
        before = np.cumsum(sizes) - sizes
        before = before - before[np.searchsorted(whose, whose)]
        start, number = np.unique(whose, return_index=True, return_inverse=True)[1:]
        shortest = np.minimum.reduceat(sizes, start)[number]
        # If the first word is too long, select it or a shortest word, with the rate on average.
        spare = np.where(before == 0, shortest, 0)
        taken = wanted - before - spare >= chance * (sizes - spare)
        candidates = np.flatnonzero(sizes == shortest)
        candidates = candidates[np.unique(whose[candidates], return_index=True)[1]]
        taken[candidates[~taken[start]]] = True
        mask = np.zeros(int(words[-1]) + 1, dtype=bool)
        mask[word] = taken
        return places[mask[words[places]]]

    def _by_spans(
        self,
        span: Numbers,
        whose: Numbers,
        sizes: Numbers,
        wanted: Numbers,
        keys: tuple[int, Numbers],
    ) -> Numbers:
        """Return an order of words, sample by sample, with spans in random order.

        Within a span the order runs from a random word to one end, then to the other:
        wherever it is cut, the selected words are adjacent.
        """
        begin = np.searchsorted(span, span)
        own = (*keys, span - span[np.searchsorted(whose, whose)])
        away = np.arange(len(span)) - begin - below(np.bincount(span)[span], *own, "from")
        away = np.where(uniform(*own, "side") < 0.5, away, -away)
        turn = np.where(away < 0, self.longest_span - away, away)
        # Only a part of a span with too many tokens is selected. Such spans come first more
        # often in return, or words in short spans (at the ends of a text) would be favoured.
        weight = np.maximum(np.bincount(span, weights=sizes)[span] / wanted, 1)
        return np.lexsort((turn, -np.log1p(-uniform(*own, "order")) / weight, whose))


def word_marks(tokenizer: Tokenizer) -> tuple[Numbers, Numbers]:
    """Return for each id whether it starts a word, and whether it is punctuation.

    In a WordPiece vocabulary tokens without ## start a word; in others, tokens with the space
    marker do, and punctuation is a word by itself.
    """
    opens = np.zeros(tokenizer.size, dtype=bool)
    parts = np.zeros(tokenizer.size, dtype=bool)
    pieces = tokenizer.kind == "wordpiece"
    for token, number in tokenizer.vocabulary().items():
        if pieces:
            opens[number] = not token.startswith("##")
        else:
            letters = token.lstrip("▁Ġ")
            # In byte-level vocabularies letters beyond ASCII are spelled in other characters,
            # none of which is a mark of punctuation in ASCII.
            parts[number] = bool(letters) and all(c.isascii() and not c.isalnum() for c in letters)
            opens[number] = parts[number] or letters != token
    return opens, parts
