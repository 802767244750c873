"""Examples of one task: their labels by name, and the columns that they were read from."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from bertsmith.ledger import Ledger
from bertsmith.tasks.reading import Reading, TaskExample, reading_named

Kind = TypeVar("Kind", bound=TaskExample)


@dataclass(frozen=True)
class Dataset(Generic[Kind]):
    """Examples of one task, from one file."""

    path: Path
    task: str
    examples: list[Kind]
    columns: dict[str, str] = field(default_factory=dict)  # role → column
    guessed: str = ""  # why this task, where none was given
    scheme: str | None = None  # tagging scheme of entity tags, such as bio
    ledger: Ledger = field(default_factory=Ledger)  # what was left out or changed in reading
    unused: tuple[str, ...] = ()  # columns that were not read
    alternatives: tuple[str, ...] = ()  # those of them that could be the label or the score
    known_labels: tuple[str, ...] = ()  # in the model's order; empty: those of the examples
    separator: str | None = None  # what is between the labels of a cell

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def reading(self) -> Reading:
        """How examples of this task are read, kept apart and checked."""
        return reading_named(self.task)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of all labels, in an order that does not depend on the file's."""
        names = (name for example in self.examples for name in example.label_names)
        return self.known_labels or ordered(names)

    def gold(self) -> list[Kind]:
        """The examples that have a label."""
        return [example for example in self.examples if example.labelled]


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Return unique names: numbers by value, O before other tags, others alphabetically."""
    unique = set(names)
    if all(name.isdecimal() and name.isascii() for name in unique):
        digits = {name: name.lstrip("0") for name in unique}
        return tuple(sorted(unique, key=lambda name: (len(digits[name]), digits[name], name)))
    return tuple(sorted(unique, key=lambda name: (name != "O", name)))
