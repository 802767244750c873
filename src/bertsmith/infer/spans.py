"""Spans of characters: the start and end of a word or an answer."""

from collections.abc import Sequence
from itertools import groupby, pairwise
from unicodedata import category

from bertsmith.tokenizer import Encoding
from bertsmith.tokenizer.scripts import UNSPACED


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span without the blanks around it, and with the accents that follow it."""
    while start < end and (blank(text[start]) or accent(text[start])):
        start += 1
    while start < end and blank(text[end - 1]):
        end -= 1
    while start < end < len(text) and accent(text[end]):
        end += 1
    return start, end


def blank(character: str) -> bool:
    """Is there nothing to see: a space, a control character, a mark that only joins others?"""
    return character.isspace() or category(character) in ("Cc", "Cf")


def accent(character: str) -> bool:
    """Does this character only add to the one before it?"""
    return category(character)[0] == "M"


def wordless(text: str) -> bool:
    """Are there only blanks, punctuation and symbols?"""
    return all(blank(character) or category(character)[0] in "PS" for character in text)


def words(text: str, encoding: Encoding) -> list[tuple[int, int, int]]:
    """The first token of every word, and the characters from where to where the word goes.

    Punctuation at a word's ends stands alone, also where a tokenizer splits at spaces only. In
    scripts without spaces every token is a word.
    """
    spans: list[tuple[int, int, int]] = []
    done = 0
    tokens = [token for token, number in enumerate(encoding.words) if number is not None]
    for _, group in groupby(tokens, key=encoding.words.__getitem__):
        for part in _parts(text, encoding.offsets, list(group)):
            start = max(done, encoding.offsets[part[0]][0])
            start, end = trimmed(text, start, encoding.offsets[part[-1]][1])
            if start >= end:
                continue
            # Byte-level tokenizers split at accents and vowel signs, where no word ends.
            inside = 0 < done == start and accent(text[start - 1]) and text[start].isalpha()
            if inside and not UNSPACED.match(text[start]):
                spans[-1] = (*spans[-1][:2], end)
            else:
                spans.append((part[0], start, end))
            done = end
    return spans


def _parts(text: str, offsets: Sequence[tuple[int, int]], inside: list[int]) -> list[list[int]]:
    """The tokens of what a tokenizer calls a word: punctuation, the word itself, punctuation."""
    shown = {token: text[slice(*offsets[token])] for token in inside}
    unspaced = {token for token in inside if UNSPACED.search(shown[token])}
    spelled = [token for token in inside if not wordless(shown[token])] or [-1]
    parts = [inside[:1]]
    for before, token in pairwise(inside):
        within = spelled[0] <= before and token <= spelled[-1] and not unspaced & {before, token}
        # A space belongs to what follows; and several tokens may spell one character.
        if within or all(map(blank, shown[before])) or offsets[token][0] < offsets[before][1]:
            parts[-1].append(token)
        else:
            parts.append([token])
    return parts
