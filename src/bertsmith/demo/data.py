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
LIBRARY = "docstrings and help topics of Python's library"


@dataclass(frozen=True)
class Data:
    """The text of one run."""

    documents: list[Document]
    own: bool  # is it a person's own?
    source: str
    areas: list[tuple[str, str]]  # texts with what they belong to
    names: list[Sentence]

    def lines(self) -> list[str]:
        """All paragraphs."""
        return [line for document in self.documents for line in document.lines()]

    def pair(self) -> tuple[str, str]:
        """Two sentences that follow each other, to look at."""
        for line in self._first_lines():
            first, _, rest = line.partition(". ")
            second = rest.partition(". ")[0].rstrip(".")
            if all(4 <= len(one.split()) <= 10 for one in (first, second)):
                return f"{first}.", f"{second}."
        return PAIR

    def sentences(self, tokenizer: Tokenizer) -> list[str]:
        """Sentences with a mask; of a person's own text, in place of its longest known word."""
        known, masked = tokenizer.vocabulary(), []
        for line in self._first_lines():
            words = line.partition(". ")[0].rstrip(".").split()
            hidden = max(words, key=lambda word: (word.lower() in known) * len(word))
            plain = all(word.strip(",;").isalpha() for word in words)
            if plain and 5 <= len(words) <= 8 and len(hidden) > 3 and hidden.lower() in known:
                place = words.index(hidden)
                masked.append(" ".join([*words[:place], "[MASK]", *words[place + 1 :]]) + ".")
        return masked[:: max(1, len(masked) // 5)][:5] or list(SENTENCES)

    def _first_lines(self) -> list[str]:
        """The first paragraph of each passage of a person's own text; none of the library."""
        documents = self.documents if self.own else []
        return [passage.paragraphs[0] for one in documents for passage in one.passages]


def read_text(folder: Path | None) -> Data:
    """Read Python's library, or a person's own folder."""
    documents = standard_library() if folder is None else own_text(folder)
    source = LIBRARY if folder is None else f"the text in {folder}"
    own = folder is not None
    return Data(documents, own, source, area_items(documents), name_items(documents, own))
