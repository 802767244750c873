"""Reading: how the rows of a table become examples of one task. No model, and no PyTorch.

`tasks/NAME/reading.py` has one `READING`; a task that has none cannot be learned from files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from bertsmith.data.tables import Table
from bertsmith.ledger import Ledger

if TYPE_CHECKING:
    from bertsmith.data.columns import Finder
    from bertsmith.tasks.examples import Where


class Example(Protocol):
    """One example of a task."""

    @property
    def where(self) -> Where:
        """Its place in a file."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that a model reads."""

    @property
    def labelled(self) -> bool:
        """Does the file say what is right?"""

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels that it has, by name; none where labels are numbers or texts."""


class Guess(NamedTuple):
    """How likely a table is meant for a task, 0 to 1, and why."""

    likely: float
    why: str


@dataclass
class Rows:
    """Rows to be read: the table, its columns by role, and where to note what is left out."""

    table: Table
    finder: Finder
    ledger: Ledger
    names: Sequence[str] | None = None  # of labels that are numbers from 0
    scheme: str | None = None  # found in reading: of tags that spell entities


class Reading:
    """How rows become examples of one task. There is one value for each task."""

    name: ClassVar[str]  # of the task, and of its folder
    order: ClassVar[int]  # its place in lists of tasks
    about: ClassVar[str]  # a few words on the prediction
    roles: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})  # → known names
    layouts: ClassVar[tuple[Any, ...]] = ()  # file formats that have examples of this task only

    def suits(self, finder: Finder) -> Guess | None:
        """Return how likely a table is meant for this task; None: not at all."""
        return None

    def examples(self, rows: Rows) -> list[Any]:
        """Return the examples of all rows, with their labels."""
        raise NotImplementedError

    def inputs(self, rows: Rows) -> list[Any | None]:
        """Return an example without a label for each row; None for a row without a text."""
        raise NotImplementedError
