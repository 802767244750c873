"""Example classes, one for each kind of task."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a file for messages: a line, row or question."""

    file: str
    number: int  # from 1
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.file}, {self.unit} {self.number}"


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text, or a pair of texts, of one class."""

    text: str
    pair: str | None
    label: str | None  # None: the file does not say
    where: Where

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that a model reads."""
        return (self.text,) if self.pair is None else (self.text, self.pair)


@dataclass(frozen=True, slots=True)
class MultiLabelled:
    """A text, or a pair, to which any number of labels apply."""

    text: str
    pair: str | None
    labels: tuple[str, ...] | None  # None: the file does not say; (): none applies
    where: Where

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that a model reads."""
        return (self.text,) if self.pair is None else (self.text, self.pair)


@dataclass(frozen=True, slots=True)
class Scored:
    """A text, or a pair, with a number."""

    text: str
    pair: str | None
    score: float | None
    where: Where

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that a model reads."""
        return (self.text,) if self.pair is None else (self.text, self.pair)


@dataclass(frozen=True, slots=True)
class Tagged:
    """A sentence whose words have tags; word i is text[slice(*offsets[i])]."""

    text: str
    words: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    tags: tuple[str, ...] | None
    where: Where
    lines: tuple[int, ...] | None = None  # of each word, in files with a line a word

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that a model reads."""
        return (self.text,)

    def at(self, word: int) -> Where:
        """Return the place of a word in the file."""
        if self.lines is None:
            return self.where
        return Where(self.where.file, self.lines[word])


@dataclass(frozen=True, slots=True)
class Annotated:
    """A text whose entities are marked by characters; its words are those of a model."""

    text: str
    spans: tuple[tuple[int, int, str], ...] | None  # start, end and label; None: not annotated
    where: Where

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that a model reads."""
        return (self.text,)


@dataclass(frozen=True, slots=True)
class Span:
    """A gold answer: passage[start:start + len(text)]; start is -1 if it is not in the passage."""

    text: str
    start: int

    @property
    def end(self) -> int:
        """The end of the answer."""
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a passage, with all gold answers; none if it is unanswerable."""

    id: str
    question: str
    passage: str
    answers: tuple[Span, ...] | None  # None: the file does not say; (): it cannot be answered
    title: str
    where: Where

    @property
    def impossible(self) -> bool:
        """Whether the question is unanswerable."""
        return self.answers == ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that a model reads."""
        return (self.question, self.passage)


@dataclass(frozen=True, slots=True)
class Options:
    """A prompt and several choices, one of them correct."""

    prompt: str
    options: tuple[str, ...]
    label: int | None  # which of them, from 0
    where: Where

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that a model reads."""
        return (self.prompt, *self.options)


@dataclass(frozen=True, slots=True)
class Related:
    """Texts that belong together, and texts that do not: any number of both for an anchor."""

    anchor: str
    positive: str
    negative: str | None
    where: Where
    more_positives: tuple[str, ...] = ()
    more_negatives: tuple[str, ...] = ()

    @property
    def positives(self) -> tuple[str, ...]:
        """All texts that belong to the anchor."""
        return (self.positive, *self.more_positives)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that a model reads: the anchor, all positives, all negatives."""
        first = () if self.negative is None else (self.negative,)
        return (self.anchor, *self.positives, *first, *self.more_negatives)


Example = Labelled | MultiLabelled | Scored | Tagged | Annotated | Question | Options | Related


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
