"""Sentences whose words have tags, and texts with annotated spans."""

from dataclasses import dataclass

from bertsmith.data.tables import Where
from bertsmith.tasks.reading import OneText


@dataclass(frozen=True, slots=True)
class Tagged(OneText):
    """A sentence whose words have tags; word i is text[slice(*offsets[i])]."""

    words: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    tags: tuple[str, ...] | None
    where: Where
    lines: tuple[int, ...] | None = None  # of each word, in files with a line a word

    @property
    def gold(self) -> tuple[str, ...] | None:
        """The tags."""
        return self.tags

    @property
    def label_names(self) -> tuple[str, ...]:
        """The tags."""
        return self.tags or ()

    def at(self, word: int) -> Where:
        """Return the place of a word in the file."""
        if self.lines is None:
            return self.where
        return Where(self.where.file, self.lines[word])


@dataclass(frozen=True, slots=True)
class Annotated(OneText):
    """A text whose entities are marked by characters; its words are those of a model."""

    spans: tuple[tuple[int, int, str], ...] | None  # start, end and label; None: not annotated
    where: Where

    @property
    def gold(self) -> tuple[tuple[int, int, str], ...] | None:
        """The spans."""
        return self.spans

    @property
    def label_names(self) -> tuple[str, ...]:
        """The tags that its spans may need, whatever the words of a model are."""
        if self.spans is None:
            return ()
        return ("O", *(f"{mark}-{label}" for _, _, label in self.spans for mark in "BI"))


def joined(
    words: tuple[str, ...], spaces: tuple[bool, ...] | None = None
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Words as a text, with a space after each (or after those that say so), and their offsets."""
    parts: list[str] = []
    offsets = []
    place = 0
    for number, word in enumerate(words):
        offsets.append((place, place + len(word)))
        space = number + 1 < len(words) and (spaces is None or spaces[number])
        parts.append(word + " " * space)
        place += len(parts[-1])
    return "".join(parts), tuple(offsets)
