"""Step 5 of the demo: attention and word senses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from bertsmith.analysis.maps import Floats
from bertsmith.analysis.pages import senses_page
from bertsmith.analysis.senses import find, senses
from bertsmith.bert import Bert
from bertsmith.demo.initialization import LOOKS
from bertsmith.files import write_text

AMBIGUOUS = "test"  # "a test fails", and "test whether": a noun and a verb
FEWEST = 20  # occurrences, below which groups say nothing
EXAMPLES = 3
FURTHEST = max(map(abs, LOOKS))


@dataclass(frozen=True)
class Head:
    """One head's attention over a pair of sentences."""

    tokens: list[str]
    layer: int
    head: int
    weights: Floats  # (n, n): rows attend to columns


@dataclass(frozen=True)
class Group:
    """Occurrences of a word that are alike."""

    count: int
    words: list[str]  # that stand about them
    examples: list[str]


@dataclass(frozen=True)
class Inspection:
    """Attention of a head, and the groups of an ambiguous word."""

    head: Head
    word: str  # "" for none
    groups: list[Group]


def inspect(
    bert: Bert, pair: tuple[str, str], texts: Sequence[str], most: int, out: Path
) -> Inspection:
    """Write the pages of attention and of an ambiguous word in `texts`, where it is frequent."""
    head = furthest_head(bert, *pair, out / "attention.html")
    # There are no groups where the word is rare, or where scikit-learn is not installed.
    if len(find(AMBIGUOUS, texts)) < FEWEST or find_spec("sklearn") is None:
        return Inspection(head, "", [])
    result = senses(bert, AMBIGUOUS, texts, groups=2, most=most)
    write_text(out / "senses.html", senses_page(result, "the library"))
    groups = []
    for number in range(max(result.groups) + 1):
        members = result.members(number)
        examples = dict.fromkeys(result.places[one].around(34) for one in members)
        groups.append(Group(len(members), result.words(number), list(examples)[:EXAMPLES]))
    return Inspection(head, AMBIGUOUS, groups)


def furthest_head(bert: Bert, first: str, second: str, page: Path) -> Head:
    """Write the attention page; return the head that gives most to words that are not near."""
    view = bert.attention(first, second)
    view.save(page)
    maps = view.maps()
    words = np.array([token.source is not None for token in view.tokens])
    places = np.arange(len(words))
    # Attention to near ones was initialized (see `initialization`); to far ones it was learned.
    far = abs(places[:, None] - places) > FURTHEST
    shares = (maps * (far & words & words[:, None])).sum((-1, -2))
    layer, head = divmod(int(shares.argmax()), maps.shape[1])
    return Head([token.text for token in view.tokens], layer, head, maps[layer, head])
