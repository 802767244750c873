"""Reading: how the rows of a table become examples of one task. No model, and no PyTorch.

`tasks/NAME/reading.py` has one `READING`; a task that has none cannot be learned from files.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from bertsmith.data.columns import Finder
from bertsmith.data.predictions import Records
from bertsmith.data.tables import FileLayout, Row, Table, Where
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.tasks.labelling import Labelling


class TaskExample:
    """One example of a task."""

    __slots__ = ()
    where: Where  # its place in a file

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that a model reads."""
        raise NotImplementedError

    @property
    def gold(self) -> Hashable:
        """The label, where two examples with the same texts must not differ in it."""
        return None

    @property
    def labelled(self) -> bool:
        """Does it have a label?"""
        return self.gold is not None

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels that it has, by name; none where labels are numbers or texts."""
        return ()


@dataclass(frozen=True, slots=True)
class OneText(TaskExample):
    """An example that is about one text."""

    text: str

    @property
    def texts(self) -> tuple[str, ...]:
        """The text that a model reads."""
        return (self.text,)


@dataclass(frozen=True, slots=True)
class TextExample(TaskExample):
    """An example that is a text, or a pair of texts."""

    text: str
    pair: str | None

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that a model reads."""
        return (self.text,) if self.pair is None else (self.text, self.pair)


@dataclass(frozen=True, slots=True)
class Unlabelled(TextExample):
    """A text, or a pair of texts, for which a prediction is wanted."""

    where: Where


class TaskGuess(NamedTuple):
    """How likely it is that a table is meant for a task, 0 to 1, and why."""

    likely: float
    why: str


@dataclass
class Rows:
    """Rows to be read: the table, its columns by role, and where to note what is left out."""

    table: Table
    finder: Finder
    ledger: Ledger
    names: Sequence[str] | None = None  # of labels that are numbers from 0
    scheme: str | None = None  # tagging scheme of entity tags, detected in reading
    separator: str | None = None  # between the labels of a cell, as given or detected in reading

    def __iter__(self) -> Iterator[tuple[Row, Where]]:
        """Every row with its place."""
        return ((row, self.table.where(row)) for row in self.table.rows)


class Reading:
    """How rows become examples of one task. There is one value for each task."""

    name: ClassVar[str]  # of the task, and of its folder
    order: ClassVar[int]  # its place in lists of tasks
    about: ClassVar[str]  # a few words on the prediction
    roles: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # → known names
    headings: ClassVar[frozenset[str]] = frozenset()  # other known names of columns
    target: ClassVar[str] = ""  # the role of labels or scores that another column could have
    layouts: ClassVar[tuple[FileLayout, ...]] = ()  # file formats for this task only
    records: ClassVar[Records] = {}  # formats of predictions other than tables
    classes: ClassVar[bool] = False  # are labels names of classes of whole texts?
    several: ClassVar[bool] = False  # may an example have any number of labels, or none?
    windows: ClassVar[bool] = True  # are long inputs read in windows?
    textless: ClassVar[str] = "rows without a text, left out"  # a line of the ledger
    shared: ClassVar[str] = ""  # the attribute of a text that several examples are about
    labelling: ClassVar[Labelling | None] = None  # how people label its examples

    def suits(self, finder: Finder) -> TaskGuess | None:
        """Return how likely a table is meant for this task; None: not at all."""
        return None

    def read(self, rows: Rows, labelled: bool) -> list[Any | None]:
        """Return each row as an example, with its label or without; None if it has no text."""
        raise NotImplementedError

    def examples(self, rows: Rows) -> list[Any]:
        """Return the examples of all rows, with their labels."""
        examples = self.read(rows, True)
        rows.ledger.note(self.textless, examples.count(None))
        return [example for example in examples if example is not None]

    def inputs(self, rows: Rows) -> list[Any | None]:
        """Return an example without a label for each row; None for a row without a text."""
        return self.read(rows, False)

    def laid_out(self, rows: Rows) -> list[Any]:
        """Return the examples of rows in one of the layouts."""
        return [row.example for row in rows.table.rows]

    def units(self, example: Any) -> list[tuple[str, ...]]:
        """Return the inputs of an example: each one text, or a pair that is read together."""
        return [example.texts]

    def kept_apart(self, examples: Sequence[Any]) -> tuple[str, list[list[str]]]:
        """Return what two sides of a split must not share: its name, and that of each example."""
        return "text", [
            [" ".join(text.casefold().split()) for text in one.texts if text.strip()]
            for one in examples
        ]

    def lint(self, splits: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the findings of `bertsmith check` that only this task has."""
        return iter(())


HERE = Path(__file__).parent


def task_folders() -> list[str]:
    """Return the names of all tasks that can be learned: folders with a `reading.py`."""
    return sorted(path.parent.name for path in HERE.glob("*/reading.py"))


@cache
def readings() -> dict[str, Reading]:
    """Load the `READING` of every task by name, sorted by `order`; none of them imports PyTorch."""
    loaded = [import_module(f"bertsmith.tasks.{name}.reading").READING for name in task_folders()]
    return {reading.name: reading for reading in sorted(loaded, key=lambda one: one.order)}


def reading_named(name: str) -> Reading:
    """Return the reading of a task."""
    if name not in readings():
        raise BertsmithError(f"unknown task {name!r}; known: {', '.join(readings())}")
    return readings()[name]
