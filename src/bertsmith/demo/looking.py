"""Attention and word senses in the demo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from bertsmith.analysis.attention import AttentionView
from bertsmith.analysis.maps import Floats
from bertsmith.analysis.pages import senses_page
from bertsmith.analysis.senses import find, senses
from bertsmith.bert import Bert
from bertsmith.demo.beginning import LOOKS
from bertsmith.demo.text import Document
from bertsmith.files import write_text

AMBIGUOUS = "test"  # "a test fails", and "test whether": a noun and a verb
FEWEST = 20  # occurrences, below which groups say nothing
EXAMPLES = 3
FURTHEST = max(map(abs, LOOKS))


@dataclass(frozen=True)
class Looked:
    """One head's attention over a pair of sentences."""

    tokens: list[str]
    layer: int
    head: int
    weights: Floats  # (n, n): rows look at columns


@dataclass(frozen=True)
class Group:
    """Occurrences of a word that are alike."""

    count: int
    words: list[str]  # that stand about them
    examples: list[str]


def look(bert: Bert, first: str, second: str, page: Path) -> Looked:
    """Write the attention page; return the head that gives most to words that are not near."""
    view: AttentionView = bert.attention(first, second)
    view.save(page)
    maps = view.maps()
    words = np.array([token.source is not None for token in view.tokens])
    places = np.arange(len(words))
    # Near ones were given to it at the start (see `beginning`): what is far was learned.
    far = abs(places[:, None] - places) > FURTHEST
    shares = (maps * (far & words & words[:, None])).sum((-1, -2))
    layer, head = divmod(int(shares.argmax()), maps.shape[1])
    return Looked([token.text for token in view.tokens], layer, head, maps[layer, head])


def group_senses(bert: Bert, documents: Sequence[Document], most: int, page: Path) -> list[Group]:
    """Write the page of an ambiguous word; return the groups that its occurrences fall into.

    There are none where the word is rare, or where scikit-learn is not installed.
    """
    texts = [line for one in documents for passage in one.passages for line in passage.paragraphs]
    if len(find(AMBIGUOUS, texts)) < FEWEST or find_spec("sklearn") is None:
        return []
    found = senses(bert, AMBIGUOUS, texts, groups=2, most=most)
    write_text(page, senses_page(found, "the library"))
    return [
        Group(
            len(found.members(number)),
            found.words(number),
            list(dict.fromkeys(found.places[one].around(34) for one in found.members(number)))[
                :EXAMPLES
            ],
        )
        for number in range(max(found.groups) + 1)
    ]
