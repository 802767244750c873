"""Which tokens a model must guess, and what it sees in their place."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from bertsmith.errors import BertsmithError
from bertsmith.examples.draw import Numbers, below, uniform
from bertsmith.examples.source import Sequences
from bertsmith.tokenizer import Tokenizer

Unit = Literal["token", "word", "span"]


class Masked(NamedTuple):
    """A row of tokens in which some are hidden."""

    ids: Numbers  # (T,) what the model sees
    rows: Numbers  # (M,) where it must guess, in order
    targets: Numbers  # (M,) what stood there


class Masking:
    """Hide a share of each sequence: by tokens, by whole words, or by spans of words.

    Of what is chosen, a share `mask` becomes the mask token, a share `random` any other token,
    and the rest stays as it is. Units are taken in random order until the share is full; the
    last one is taken or left by chance, so that the share is right on average, and each sequence
    has at least one target if it has text. Special tokens are never chosen. Draws depend on the
    sample's number: seen again in a later epoch, a text is masked in another way.
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
        seed: int = 0,
    ) -> None:
        if tokenizer.mask_id is None:
            raise BertsmithError("this tokenizer has no mask token")
        if not 0 < rate < 1 or mask < 0 or random < 0 or mask + random > 1:
            raise BertsmithError(
                f"masking: rate {rate}, mask {mask}, random {random} are not shares of a whole"
            )
        if span < 1 or longest_span < 1:
            raise BertsmithError("masking: a span has at least one word")
        self.rate, self.mask, self.random, self.unit = rate, mask, random, unit
        self.span, self.longest_span, self.seed = span, longest_span, seed
        self.mask_id = tokenizer.mask_id
        special = np.zeros(tokenizer.size, dtype=bool)
        special[sorted(tokenizer.special_ids)] = True
        self.special = special
        self.ordinary = np.flatnonzero(~special)
        self.opens, self.parts = word_marks(tokenizer)

    def __call__(self, sequences: Sequences, samples: Numbers) -> Masked:
        """Hide tokens of sequences whose samples have these numbers."""
        ids = sequences.ids
        owner = np.repeat(np.arange(len(samples)), sequences.lengths)
        begins = np.cumsum(sequences.lengths) - sequences.lengths
        # A token is known by its sample and its place in it, whatever batch it is in.
        token = (self.seed, samples[owner], np.arange(len(ids)) - begins[owner])
        free = ~self.special[ids]
        units = self._units(ids, owner, free, token)
        rows = self._choose(units, owner, free, samples)
        one = (self.seed, *(key[rows] for key in token[1:]))
        # The words of a span share its fate.
        fate = self._fate(units, rows, token) if self.unit == "span" else uniform(*one, "fate")
        other = self.ordinary[below(len(self.ordinary), *one, "other")]
        targets = ids[rows]
        shown = np.where(fate < self.mask, self.mask_id, targets)
        shown = np.where((fate >= self.mask) & (fate < self.mask + self.random), other, shown)
        seen = ids.copy()
        seen[rows] = shown
        return Masked(seen, rows, targets)

    def _units(
        self, ids: Numbers, owner: Numbers, free: Numbers, token: tuple[int, Numbers, Numbers]
    ) -> Numbers:
        """The number of the unit that each token belongs to, rising along the row."""
        if self.unit == "token":
            return np.arange(len(ids))
        opens = self.opens[ids] | ~free
        opens[1:] |= self.parts[ids[:-1]] | ~free[:-1] | (owner[1:] != owner[:-1])
        opens[:1] = True
        if self.unit == "span":
            words = np.cumsum(opens) - 1
            first = np.flatnonzero(opens)
            # A span goes on with a fixed chance after each word, so its length is geometric.
            ends = uniform(self.seed, *(key[first] for key in token[1:]), "end") < 1 / self.span
            starts = np.ones(len(first), dtype=bool)
            starts[1:] = ends[:-1] | ~free[first[1:]] | ~free[first[:-1]]
            starts[1:] |= owner[first[1:]] != owner[first[:-1]]
            spans = np.cumsum(starts) - 1
            place = np.arange(len(first)) - np.flatnonzero(starts)[spans]
            starts |= place % self.longest_span == 0
            return (np.cumsum(starts) - 1)[words]
        return np.cumsum(opens) - 1

    def _choose(self, units: Numbers, owner: Numbers, free: Numbers, samples: Numbers) -> Numbers:
        """The rows of the units that are taken."""
        places = np.flatnonzero(free)
        if not len(places):
            return places
        unit, first, sizes = np.unique(units[places], return_index=True, return_counts=True)
        whose = owner[places[first]]
        order_in_sample = np.arange(len(unit)) - np.searchsorted(whose, whose)
        keys = (self.seed, samples[whose], order_in_sample)
        order = np.argsort(whose + uniform(*keys, "order"), kind="stable")
        whose, sizes, unit = whose[order], sizes[order], unit[order]
        counts = np.bincount(whose, weights=sizes, minlength=len(samples))
        wanted = np.maximum(counts * self.rate, np.minimum(counts, 1))[whose]
        before = np.cumsum(sizes) - sizes
        before = before - before[np.searchsorted(whose, whose)]
        chance = uniform(*(key if isinstance(key, int) else key[order] for key in keys), "last")
        taken = np.zeros(int(units[-1]) + 1, dtype=bool)
        taken[unit] = (wanted - before) / sizes > chance
        taken[unit[before == 0]] |= wanted[before == 0] <= 1
        return places[taken[units[places]]]

    def _fate(self, units: Numbers, rows: Numbers, token: tuple[int, Numbers, Numbers]) -> Numbers:
        first = np.searchsorted(units, units[rows])
        return uniform(self.seed, *(key[first] for key in token[1:]), "fate")


def word_marks(tokenizer: Tokenizer) -> tuple[Numbers, Numbers]:
    """For each id: does it open a word, and does it part words (is it punctuation)?

    In a WordPiece vocabulary what has no ## opens a word; elsewhere what carries the mark of a
    space does, and punctuation stands alone.
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
