"""Stretches of characters: where a word or an answer begins and ends for a reader."""

from __future__ import annotations

from unicodedata import category


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The same stretch without the blanks around it, and with the accents that follow it."""
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
