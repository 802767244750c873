"""Sentence splitting of lines, by the rules of a language."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, pairwise

from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.settings.corpus import LINES
from bertsmith.tokenizer.guard import guarded, hushed

# Beyond this a line or a sentence is cut at a space, so that memory stays bounded.
LONGEST_LINE = 1 << 20
LONGEST_SENTENCE = 1 << 16
WIDE_SPACE = re.compile(r"[^\S\x00-\x7f]")
Split = Callable[[str], list[str]]  # of one line


class Splitter:
    """Splits lines into sentences; a sentence never spans two lines."""

    def __init__(self, language: str) -> None:
        self.language = None if language == LINES else language

    def split(self, lines: list[str], ledger: Ledger) -> list[list[str]]:
        """Return the sentences of each line, which are the line again when joined.

        The white space between two sentences stands before the second one.
        """
        if self.language is None:
            return _each(lambda line: [line], lines, ledger)
        rules = Ledger()
        try:
            with guarded("a line cannot be split"), hushed():
                sentences = _each(self._split, lines, rules)
        except BertsmithError:  # sentencex failed on some line: retry line by line
            rules = Ledger()
            with hushed():
                sentences = _each(lambda line: self._split_or_not(line, rules), lines, rules)
        for what, count in rules.counts.items():
            ledger.note(what, count)
        return sentences

    def _split(self, line: str) -> list[str]:
        import sentencex  # imported here, since fine-tuning does not need it

        return list(sentencex.segment(self.language, line))

    def _split_or_not(self, line: str, ledger: Ledger) -> list[str]:
        """Split a line; if sentencex fails on a wide space, with plain spaces instead."""
        for text in (line, WIDE_SPACE.sub(" ", line)):
            try:
                with guarded("a line cannot be split"):
                    parts = self._split(text)
            except BertsmithError:
                continue
            ends = list(accumulate(map(len, parts)))
            if ends and ends[-1] == len(line):
                return [line[start:end] for start, end in pairwise([0, *ends])]
        ledger.note("lines that sentencex failed on, kept as one sentence")
        return [line]


def _each(split: Split, lines: list[str], ledger: Ledger) -> list[list[str]]:
    def of(line: str) -> Iterator[str]:
        for sentence in _spaces_first(split(line)):
            yield from chunks(sentence, LONGEST_SENTENCE, "sentences", ledger)

    return [list(of(line)) for line in lines]


def _spaces_first(parts: Iterable[str]) -> Iterator[str]:
    """Move the white space at the end of each part to the next one; drop that of the last one."""
    behind = ""
    for part in parts:
        text = behind + part
        sentence = text.rstrip()
        behind = text[len(sentence) :]
        if sentence:
            yield sentence


def chunks(text: str, most: int, what: str, ledger: Ledger) -> Iterator[str]:
    """Yield a text in chunks of at most `most` characters, cut before spaces if there are any."""
    if len(text) <= most:
        yield text
        return
    ledger.note(f"{what} longer than {most:,} characters, cut")
    start = 0
    while len(text) - start > most:
        space = text.rfind(" ", start + 1, start + most + 1)
        end = start + most if space < 0 else space
        yield text[start:end]
        start = end
    yield text[start:]
