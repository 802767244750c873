"""`read_data` and `open_data`: any source → examples, all at once or in portions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from bertsmith.data.columns import Finder
from bertsmith.data.delimited import Headings
from bertsmith.data.predictions import Records
from bertsmith.data.sources import Options, source_tables
from bertsmith.data.tables import PORTION, FileLayout, Table
from bertsmith.errors import BertsmithError, nearest, setting_name
from bertsmith.ledger import Ledger
from bertsmith.tasks.cells import (
    LABEL_VALUES,
    TextReading,
    alternatives,
    label_column,
    text_columns,
    without_header,
)
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.reading import Reading, Rows, reading_named, readings

TEXTS = "text"  # the task of verbs that read texts alone
DECISION = "answer"  # Prodigy's column: "accept", "reject" or "ignore"


class TextsReading(TextReading):
    """Texts alone, blank ones too, for verbs that need no task."""

    name = TEXTS
    blank, pairs = True, False

    def examples(self, rows: Rows) -> list[Any]:
        """All texts that there are."""
        return [one for one in self.inputs(rows) if one is not None]


@dataclass(frozen=True)
class Portion:
    """Some rows of a source with their examples; None if a row has no text."""

    examples: list[Any]
    rows: list[dict[str, Any]]
    share: float  # of the source that has been read with them, from 0 to 1


class Data:
    """An opened source of examples: `read` all of it, or iterate over its `portions`.

    `columns` (role → column), `unused` (columns without a role) and `names` are known after the
    first rows; the ledger counts rows that are left out or changed.
    """

    def __init__(
        self,
        source: Any,
        task: str | None,
        options: Options,
        label_names: Sequence[str] | None = None,
        ledger: Ledger | None = None,
        separator: str | None = None,
    ) -> None:
        self.source, self.task, self.options, self.separator = source, task, options, separator
        self.label_names, self.ledger = label_names, ledger or Ledger()
        self.path = Path(source) if isinstance(source, str | Path) else Path("list")
        self.names: tuple[str, ...] = ()
        self.columns: Mapping[str, str] = {}
        self.unused: tuple[str, ...] = ()
        self.delimiter = ","  # of a csv file that is being read

    def tables(self, size: int = PORTION) -> Iterator[Table]:
        """Yield the rows unchanged, in portions."""
        return source_tables(self.source, self.options, self.ledger, size)

    def portions(self, size: int | None = None) -> Iterator[Portion]:
        """Yield examples without labels, in portions; columns are found once, in the first rows."""
        columns, complete, empty = dict(self.options.columns), 0, 0
        for table in self.tables(size or PORTION):
            self.delimiter = "," if table.delimiter == "\t" else table.delimiter
            for start in range(0, len(table.rows), size or PORTION):
                portion = replace(table, rows=table.rows[start : start + (size or PORTION)])
                examples = self._inputs(portion, columns)
                missing = examples.count(None)
                empty, complete = empty + missing, complete + len(examples) - missing
                progress = table.share
                if table.share == 1.0 and len(table.rows) > PORTION:  # a table read at once
                    progress = (start + len(examples)) / len(table.rows)
                yield Portion(examples, [row.cells for row in portion.rows], progress)
            if not complete and empty >= PORTION:
                break
        self.ledger.note("rows without a text", empty)
        if not complete:
            what = "no row of it has a text" if empty else "contains no examples"
            raise BertsmithError(f"{self.path}: {what}")

    def texts(self, pairs: bool = False) -> Iterator[str]:
        """Yield every text, empty if a row has none; with `pairs`, the second texts too."""
        for portion in self.portions():
            for example in portion.examples:
                yield "" if example is None else example.texts[0]
                if pairs and example is not None:
                    yield from example.texts[1:]

    def read(self) -> Dataset[Any]:
        """Return all examples with their labels."""
        tables = list(self.tables())
        if not tables:
            raise BertsmithError(f"{self.path}: contains no examples")
        table = tables[0]
        if len(tables) > 1:
            names = tuple(dict.fromkeys(name for one in tables for name in one.names))
            path = self.path if len({one.path for one in tables}) > 1 else table.path
            rows = [row._replace(file=one.path) for one in tables for row in one.rows]
            table = replace(table, path=path, names=names, rows=rows)
        if not table.rows:
            what = "contains no examples" if table.layout else "contains no rows"
            raise BertsmithError(f"{table.path}: {what}")
        dataset = self._laid_out(table) if table.layout else self._examples(table)
        if not dataset.examples:
            raise BertsmithError(f"{table.path}: contains no examples")
        missing = sum(not example.labelled for example in dataset.examples)
        if 0 < missing < len(dataset):
            self.ledger.note("examples without a label, not trained on and not scored", missing)
        return dataset

    def _laid_out(self, table: Table) -> Dataset[Any]:
        reading, layout = self._layout(table)
        rows = Rows(table, self._finder(table, {}, reading), self.ledger)
        examples, why = reading.laid_out(rows), "" if self.task else f"it has {layout.content}"
        columns, scheme = dict(table.columns), rows.scheme
        return Dataset(table.path, reading.name, examples, columns, why, scheme, self.ledger)

    def _examples(self, table: Table) -> Dataset[Any]:
        columns = self.options.columns_of(table.names if table.header else ())
        if not table.header:
            columns = {**without_header(table), **columns}
        reading, why = (self._reading(), "") if self.task else guess(table, columns)
        table, decisions = accepted(table, self.ledger)
        finder = self._finder(table, columns, reading)
        if decisions:
            finder.note("decision", decisions)
        rows = Rows(table, finder, self.ledger, self.label_names, separator=self.separator)
        examples = reading.examples(rows)
        labels = {name for one in examples for name in one.label_names} if reading.classes else ()
        if self.label_names and labels and not {*labels} & {*self.label_names}:
            unused = "names of labels, not used since the labels are no numbers"
            self.ledger.note(unused, len(self.label_names))
        return Dataset(
            table.path,
            reading.name,
            examples,
            dict(finder.columns),
            why,
            rows.scheme,
            self.ledger,
            unused=finder.unused,
            alternatives=alternatives(finder) if reading.target else (),
            separator=rows.separator,
        )

    def _reading(self) -> Reading:
        return TextsReading() if self.task == TEXTS else reading_named(str(self.task))

    def _finder(self, table: Table, given: Mapping[str, str], reading: Reading) -> Finder:
        return Finder(table, given, {**known_roles(), **reading.roles})

    def _layout(self, table: Table) -> tuple[Reading, FileLayout]:
        """The layout of a table and the reading that has it, which must be that of the task."""
        every = ((one, layout) for one in readings().values() for layout in one.layouts)
        reading, layout = next(pair for pair in every if pair[1].name == table.layout)
        if self.task not in (None, TEXTS, reading.name):
            why = f"which is for {reading.name}, not for {self.task}"
            raise BertsmithError(f"{table.path} holds {layout.content}, {why}")
        return reading, layout

    def _inputs(self, table: Table, columns: dict[str, str]) -> list[Any]:
        """The example of each row, without a label; `columns` is completed with what is found."""
        if table.layout:
            self._layout(table)
            self.names, self.columns = table.names, table.columns
            return [row.example for row in table.rows]
        if not table.header:
            columns.update({**without_header(table), **columns})
        elif not columns:
            columns.update(self.options.columns_of(table.names))
        if self.task is None:
            self.task = guess(table, columns)[0].name
        finder = self._finder(table, columns, reading := self._reading())
        examples = reading.inputs(Rows(table, finder, self.ledger))
        columns.update((role, name) for role, name in finder.columns.items() if name in table.names)
        self.names, self.columns = table.names, dict(finder.columns)
        self.unused = finder.unused
        return examples


def guess(table: Table, given: Mapping[str, str]) -> tuple[Reading, str]:
    """The likeliest task of a table among all tasks, and why."""
    if table.task:
        return reading_named(table.task), "the file says so"
    roles = known_roles()
    finders = ((one, Finder(table, given, {**roles, **one.roles})) for one in readings().values())
    guesses = [(one, likely) for one, finder in finders if (likely := one.suits(finder))]
    if not guesses:
        finder = Finder(table, given, {**roles, **TextReading.roles})
        text_columns(finder)  # says what is missing
        label_column(finder)
        choose = f"choose one with {setting_name('task')}"
        raise BertsmithError(f"{table.path}: cannot tell the task; {choose}")
    reading, best = max(guesses, key=lambda pair: pair[1].likely)
    return reading, best.why


def accepted(table: Table, ledger: Ledger) -> tuple[Table, str]:
    """The rows that an annotator accepted, and the column of decisions, if there is one."""
    decisions = {row.cells.get(DECISION) for row in table.rows if DECISION in table.names}
    if not decisions or not decisions <= {"accept", "reject", "ignore"}:
        return table, ""
    rows = [row for row in table.rows if row.cells[DECISION] == "accept"]
    ledger.note("rows that the annotator did not accept, left out", len(table.rows) - len(rows))
    return replace(table, rows=rows), DECISION


def known_roles() -> dict[str, tuple[str, ...]]:
    """The roles of columns of all tasks, each with the names that it is known by."""
    roles: dict[str, tuple[str, ...]] = {}
    for reading in readings().values():
        roles |= {role: names for role, names in reading.roles.items() if role not in roles}
    return roles


def known_headings() -> Headings:
    """The names of columns that make a row a header."""
    headings = (one.headings.union(*one.roles.values()) for one in readings().values())
    return Headings({*chain.from_iterable(headings)}, LABEL_VALUES)


def known_layouts() -> tuple[FileLayout, ...]:
    """The file formats that have examples of one task only."""
    return tuple(layout for one in readings().values() for layout in one.layouts)


def known_formats() -> dict[str, str]:
    """The formats of files by the endings of their names."""
    return Options(layouts=known_layouts()).endings


def task_of_format(format: str) -> str | None:
    """The task that a format has examples of, where it is only one."""
    owners = (one.name for one in readings().values() for two in one.layouts if two.name == format)
    return next(owners, None)


def known_records() -> Records:
    """The formats of predictions that tasks have beside tables."""
    return {name: one for task in readings().values() for name, one in task.records.items()}


def open_data(
    source: Any,
    task: str | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    format: str | None = None,
    split: str | None = None,
    label_names: Sequence[str] | None = None,
    skip_ragged: bool = False,
    usual: Mapping[str, str] | None = None,
    ledger: Ledger | None = None,
    separator: str | None = None,
) -> Data:
    """Open a source of texts or examples.

    `source` is the path of a file (a pattern such as `data/train-*.parquet`, a folder, or `-` for
    standard input), a pandas data frame, a pyarrow table, or a list of texts, dictionaries or
    tuples. The task is detected by default; "text" reads texts only. `columns` assigns columns to
    roles (`text`, `pair`, `label`, `score`, `tokens`, `tags`, ...) if their names do not; otherwise
    columns with the names in `usual` are used if the source has them. `header=False` means that the
    first row does not contain names. `label_names` are the names of labels that are numbers from 0.
    `separator` is what stands between several labels of a cell; it is detected by default.
    """
    reading, roles = None if task in (None, TEXTS) else reading_named(str(task)), known_roles()
    chosen_columns = {role: name for role, name in (columns or {}).items() if name}
    for role in chosen_columns.keys() - roles.keys():
        known = ", ".join(roles)
        raise BertsmithError(f"no role {role!r} of columns{nearest(role, roles)}; known: {known}")
    options = Options(
        chosen_columns,
        header,
        encoding,
        format,
        split,
        skip_ragged,
        usual or {},
        texts_only=task == TEXTS,
        layouts=known_layouts(),
        chosen=None if task is None else reading.layouts if reading else (),
        headings=known_headings(),
    )
    return Data(source, task, options, label_names, ledger, separator)


def read_data(source: Any, task: str | None = None, **options: Any) -> Dataset[Any]:
    """Return all examples of a source; `options` are those of `open_data`."""
    return open_data(source, task, **options).read()


def read_texts(source: Any, **options: Any) -> list[str]:
    """Return all texts of a source; `options` are those of `open_data`."""
    return list(open_data(source, TEXTS, **options).texts())
