"""Lines → sentences, by the rules of a language."""

from __future__ import annotations

from collections.abc import Iterator

import sentencex

from bertsmith.corpus.settings import LINES
from bertsmith.ledger import Ledger

# Beyond this a line or a sentence is cut at a space, so that memory stays bounded.
LONGEST_LINE = 1 << 20
LONGEST_SENTENCE = 1 << 16


class Splitter:
    """Splits lines into sentences; a sentence never goes over the end of a line."""

    def __init__(self, language: str) -> None:
        self.language = None if language == LINES else language

    def split(self, line: str, ledger: Ledger) -> list[str]:
        """The sentences of a line, none of them empty, without white space around them."""
        if len(line) > LONGEST_SENTENCE:
            return list(self._split_long(line, ledger))
        return self._split(line)

    def _split(self, line: str) -> list[str]:
        if self.language is None:
            return [line]
        parts = sentencex.segment(self.language, line)
        return [sentence for part in parts if (sentence := part.strip())]

    def _split_long(self, line: str, ledger: Ledger) -> Iterator[str]:
        for stretch in _stretches(line, LONGEST_LINE, "lines", ledger):
            for sentence in self._split(stretch):
                yield from _stretches(sentence, LONGEST_SENTENCE, "sentences", ledger)


def _stretches(text: str, most: int, what: str, ledger: Ledger) -> Iterator[str]:
    """The text in stretches of at most so many characters, cut at spaces where there are any."""
    ledger.note(f"{what} longer than {most:,} characters, cut", len(text) > most)
    start = 0
    while start < len(text):
        end = start + most
        if end < len(text):
            end = text.rfind(" ", start + 1, end) + 1 or end
        if stretch := text[start:end].strip():
            yield stretch
        start = end
