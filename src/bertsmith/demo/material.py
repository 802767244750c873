"""The text, labels and example sentences of a demo run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bertsmith.demo.labels import Sentence, area_items, name_items
from bertsmith.demo.text import Document, own_text, standard_library
from bertsmith.tokenizer import Tokenizer

SENTENCES = (
    "Return the [MASK] of the list.",
    "Return [MASK] if the file exists.",
    "Return a [MASK] of all the keys.",
    "This method returns a new [MASK].",
    "Open the [MASK] and read the first line.",
)
PAIR = ("Return an unordered list of names.", "If there are none, it is empty.")


@dataclass(frozen=True)
class Material:
    """The text of one run."""

    documents: list[Document]
    own: bool  # is it a person's own?
    source: str
    areas: list[tuple[str, str]]  # texts with what they belong to
    names: list[Sentence]

    def pair(self) -> tuple[str, str]:
        """Two sentences that follow each other, to look at."""
        found = _short_pairs(self.documents) if self.own else []
        return found[0] if found else PAIR

    def sentences(self, tokenizer: Tokenizer) -> list[str]:
        """Sentences with a mask; of a person's own text, with its longest known word hidden."""
        found = _masked(self.documents, tokenizer.vocabulary()) if self.own else []
        return found or list(SENTENCES)


def standard_material() -> Material:
    """What Python's library says of itself."""
    documents = standard_library()
    source = "docstrings and help topics of Python's library"
    areas, names = area_items(documents), name_items(documents, own=False)
    return Material(documents, False, source, areas, names)


def own_material(folder: Path) -> Material:
    """A person's own folder."""
    documents = own_text(folder)
    areas, names = area_items(documents), name_items(documents, own=True)
    return Material(documents, True, f"the text in {folder}", areas, names)


def _first_lines(documents: list[Document]) -> list[str]:
    return [passage.paragraphs[0] for one in documents for passage in one.passages]


def _short_pairs(documents: list[Document]) -> list[tuple[str, str]]:
    pairs = []
    for line in _first_lines(documents):
        first, _, rest = line.partition(". ")
        second = rest.partition(". ")[0].rstrip(".")
        if all(4 <= len(one.split()) <= 10 for one in (first, second)):
            pairs.append((f"{first}.", f"{second}."))
    return pairs


def _masked(documents: list[Document], known: dict[str, int]) -> list[str]:
    found = []
    for line in _first_lines(documents):
        words = line.partition(". ")[0].rstrip(".").split()
        hidden = max(words, key=lambda word: (word.lower() in known) * len(word))
        plain = all(word.strip(",;").isalpha() for word in words)
        if plain and 5 <= len(words) <= 8 and len(hidden) > 3 and hidden.lower() in known:
            place = words.index(hidden)
            found.append(" ".join([*words[:place], "[MASK]", *words[place + 1 :]]) + ".")
    return found[:: max(1, len(found) // 5)][:5]
