"""Examples of one task: their labels by name, and the columns that they were read from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.tasks.examples import (
    Annotated,
    Example,
    Labelled,
    MultiLabelled,
    Options,
    Question,
    Scored,
    Tagged,
)

TASKS = {
    "classification": "one label for a text or a pair of texts",
    "multilabel": "any number of labels",
    "regression": "a number for a text or a pair",
    "tagging": "a tag for every word",
    "answering": "an answer that stands in a passage",
    "choice": "one of several choices",
    "similarity": "texts that belong together, or how near two texts are",
}
Kind = TypeVar("Kind", bound=Example)


@dataclass(frozen=True)
class Dataset(Generic[Kind]):
    """Examples of one task, from one file."""

    path: Path
    task: str
    examples: list[Kind]
    columns: dict[str, str] = field(default_factory=dict)  # role → column
    guessed: str = ""  # why this task, where none was given
    scheme: str | None = None  # of tags that spell entities
    ledger: Ledger = field(default_factory=Ledger)  # what was left out or changed in reading
    unused: tuple[str, ...] = ()  # columns that were not read
    alternatives: tuple[str, ...] = ()  # those of them that could be the label or the score
    known_labels: tuple[str, ...] = ()  # all labels in their order, where the examples do not say

    def __len__(self) -> int:
        return len(self.examples)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of all labels, in an order that does not depend on the file's."""
        return self.known_labels or ordered(
            name for example in self.examples for name in label_names(example)
        )

    def gold(self) -> list[Kind]:
        """The examples that have a label."""
        return [example for example in self.examples if has_gold(example)]


def label_names(example: Example) -> tuple[str, ...]:
    """Return the labels of an example."""
    match example:
        case Labelled(label=str(label)):
            return (label,)
        case MultiLabelled(labels=tuple(labels)):
            return labels
        case Tagged(tags=tuple(tags)):
            return tags
        case Annotated(spans=tuple(spans)):  # whatever the words of a model are
            return ("O", *(f"{mark}-{label}" for _, _, label in spans for mark in "BI"))
    return ()


def has_gold(example: Example) -> bool:
    """Return whether an example has a label (a score, tags, answers)."""
    match example:
        case Labelled(label=None) | MultiLabelled(labels=None) | Scored(score=None):
            return False
        case Tagged(tags=None) | Annotated(spans=None):
            return False
        case Question(answers=None) | Options(label=None):
            return False
    return True


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Return unique names: numbers by value, O before other tags, others alphabetically."""
    unique = set(names)
    if all(name.isdecimal() and name.isascii() for name in unique):
        return tuple(
            sorted(unique, key=lambda name: (len(name.lstrip("0")), name.lstrip("0"), name))
        )
    return tuple(sorted(unique, key=lambda name: (name != "O", name)))


def known_task(task: str) -> str:
    """The same task, if there is one of this name."""
    if task not in TASKS:
        raise BertsmithError(f"unknown task {task!r}; known: {', '.join(TASKS)}")
    return task
