"""Stretches of characters: where a word or an answer begins and ends for a reader."""

from __future__ import annotations

from unicodedata import category


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The same stretch without the spaces around it, and with the accents that follow it."""
    while start < end and (text[start].isspace() or accent(text[start])):
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    while start < end < len(text) and accent(text[end]):
        end += 1
    return start, end


def accent(character: str) -> bool:
    """Does this character only add to the one before it?"""
    return category(character)[0] == "M"


def wordless(text: str) -> bool:
    """Is there nothing but punctuation, symbols and spaces?"""
    return all(category(character)[0] in "PSZC" for character in text)
