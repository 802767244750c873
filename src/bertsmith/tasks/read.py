"""`read_data` and `open_data`: any source → examples, all at once or in portions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertsmith.data.columns import NAMES, Finder, guess_task, spans_column, without_header
from bertsmith.data.sources import TEXTS, Options, source_tables
from bertsmith.data.tables import PORTION, Table, is_absent, sample
from bertsmith.errors import BertsmithError, nearest
from bertsmith.ledger import Ledger
from bertsmith.metrics.schemes import convert, detect
from bertsmith.tasks.answering.reading import question_rows, read_questions
from bertsmith.tasks.choice.reading import choice_rows, read_choices
from bertsmith.tasks.dataset import Dataset, has_gold, known_task
from bertsmith.tasks.examples import Labelled, Tagged, joined
from bertsmith.tasks.tagging.characters import accepted
from bertsmith.tasks.texts import (
    read_annotated,
    read_labelled,
    read_multilabelled,
    read_related,
    read_scored,
    read_tagged,
    words_cell,
)

LAYOUTS = {"squad": "answering", "conll": "tagging", "conllu": "tagging"}
SPOKEN = {"squad": "SQuAD's layout", "conll": "words with tags", "conllu": "words with tags"}


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
    ) -> None:
        self.source, self.task, self.options = source, task, options
        self.label_names, self.ledger = label_names, ledger or Ledger()
        self.path = Path(source) if isinstance(source, str | Path) else Path("list")
        self.names: tuple[str, ...] = ()
        self.columns: Mapping[str, str] = {}
        self.unused: tuple[str, ...] = ()
        self.delimiter = ","  # of a csv file that is being read

    def tables(self, size: int = PORTION) -> Iterator[Table]:
        """Yield the rows unchanged, in portions."""
        return source_tables(self.source, self.task, self.options, self.ledger, size)

    def portions(self, size: int | None = None) -> Iterator[Portion]:
        """Yield examples without their labels, in portions, for prediction and embedding.

        The columns that the first rows show are used for all rows.
        """
        given, complete, empty = dict(self.options.columns), 0, 0
        for table in self.tables(size or PORTION):
            self.delimiter = "," if table.delimiter == "\t" else table.delimiter
            for start in range(0, len(table.rows), size or PORTION):
                part = replace(table, rows=table.rows[start : start + (size or PORTION)])
                examples = self._inputs(part, given)
                empty += examples.count(None)
                complete += len(examples) - examples.count(None)
                rows = [row.cells for row in part.rows]
                yield Portion(examples, rows, self._share(table, start + len(rows)))
            if not complete and empty >= PORTION:
                break
        self.ledger.note("rows without a text", empty)
        if not complete:
            what = "no row of it has a text" if empty else "contains no examples"
            raise BertsmithError(f"{self.path}: {what}")

    def _share(self, table: Table, done: int) -> float:
        whole = table.share == 1.0 and len(table.rows) > PORTION
        return done / len(table.rows) if whole else table.share

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
            paths = {one.path for one in tables}
            path = self.path if len(paths) > 1 else table.path
            file = len(paths) > 1
            rows = [
                row._replace(file=one.path) if file else row for one in tables for row in one.rows
            ]
            table = replace(table, path=path, names=names, rows=rows)
        if not table.rows:
            what = "contains no examples" if table.layout else "contains no rows"
            raise BertsmithError(f"{table.path}: {what}")
        dataset = self._laid_out(table) if table.layout else self._examples(table)
        if not dataset.examples:
            raise BertsmithError(f"{table.path}: contains no examples")
        missing = sum(not has_gold(example) for example in dataset.examples)
        if 0 < missing < len(dataset):
            self.ledger.note("examples without a label, not trained on and not scored", missing)
        return dataset

    # ------------------------------------------------------------------ with labels

    def _laid_out(self, table: Table) -> Dataset[Any]:
        """Examples of a format that has only one task: SQuAD's and CoNLL's."""
        task = LAYOUTS[table.layout]
        self._fits(table)
        why = "" if self.task else f"it has {SPOKEN[table.layout]}"
        examples = [row.example for row in table.rows]
        scheme = None
        if task == "tagging":
            if table.layout == "conllu" and all(t == "_" for one in examples for t in one.tags):
                raise BertsmithError(
                    f"{table.path}: its column {table.columns['tags']} is empty; choose another "
                    "with --column tags=NAME"
                )
            examples, scheme = self._spelled(examples)
        columns = dict(table.columns)
        return Dataset(table.path, task, examples, columns, why, scheme, self.ledger)

    def _examples(self, table: Table) -> Dataset[Any]:
        given = self.options.columns_of(table.names if table.header else ())
        if not table.header:
            given = {**without_header(table), **given}
        task, why = (self.task, "") if self.task else guess_task(table, given)
        table, decisions = accepted(table, self.ledger)
        finder, ledger, names = Finder(table, given), self.ledger, self.label_names
        if decisions:
            finder.note("decision", decisions)
        scheme = None
        examples: list[Any]
        match task:
            case "tagging":
                if column := spans_column(table, given):
                    examples, scheme = read_annotated(table, finder, ledger, column), "bio"
                else:
                    examples, scheme = self._spelled(read_tagged(table, finder, ledger, names))
            case "classification" | "text":
                examples = list(read_labelled(table, finder, ledger, names))
            case "multilabel":
                examples = list(read_multilabelled(table, finder, ledger, names))
            case "answering":
                examples = list(read_questions(table, finder, ledger))
            case "choice":
                examples = list(read_choices(table, finder, ledger))
            case "similarity" if _related(table, given):
                examples = list(read_related(table, finder, ledger))
            case _:
                examples = list(read_scored(table, finder, ledger))
        also = _alternatives(table, finder, task)
        return Dataset(
            table.path,
            task,
            examples,
            dict(finder.columns),
            why,
            scheme,
            ledger,
            unused=finder.unused,
            alternatives=also,
        )

    def _spelled(self, examples: list[Tagged]) -> tuple[list[Tagged], str | None]:
        """Tagged sentences with their scheme; IOB1, which is hard to learn, becomes BIO."""
        scheme = detect(example.tags for example in examples if example.tags is not None)
        if scheme != "iob1":
            return examples, scheme
        self.ledger.note("sentences converted from IOB1 to BIO", len(examples))
        return [
            one if one.tags is None else replace(one, tags=tuple(convert(one.tags, "bio")))
            for one in examples
        ], "bio"

    def _fits(self, table: Table) -> None:
        task, layout = LAYOUTS[table.layout], SPOKEN[table.layout]
        if self.task not in (None, TEXTS, task):
            raise BertsmithError(
                f"{table.path} holds {layout}, which is for {task}, not for {self.task}"
            )

    # ------------------------------------------------------------------ without labels

    def _inputs(self, table: Table, given: dict[str, str]) -> list[Any]:
        """What a model of a task reads of each row; `given` learns the columns."""
        if table.layout:
            self._fits(table)
            self.names, self.columns = table.names, table.columns
            return [row.example for row in table.rows]
        if not table.header:
            given.update({**without_header(table), **given})
        elif not given:
            given.update(self.options.columns_of(table.names))
        if self.task is None:
            self.task = guess_task(table, given)[0]
        finder = Finder(table, given)
        examples = self._unlabelled(table, finder)
        given.update((role, name) for role, name in finder.columns.items() if name in table.names)
        self.names, self.columns = table.names, dict(finder.columns)
        self.unused = finder.unused
        return examples

    def _unlabelled(self, table: Table, finder: Finder) -> list[Any]:
        if self.task == "choice":
            rows = choice_rows(table, finder)
            return [one and replace(one, label=None) for one in rows]
        if self.task == "answering":
            return list(question_rows(table, finder, self.ledger, gold=False))
        related = {"anchor", "positive"} <= {*finder.given, *finder.by_plain}
        if self.task == "similarity" and related:
            finder.given = {**finder.given, "text": finder.needed("anchor")}
            finder.given["pair"] = finder.needed("positive")
        words = self.task == "tagging" and "text" not in finder.given
        words = words and not spans_column(table, finder.given)  # those are places in the text
        if words and (column := _words_column(table, finder)):
            return [self._words(table, row, column) for row in table.rows]
        columns = finder.texts()
        if self.task in ("tagging", TEXTS):
            columns = finder.single(columns)
        examples: list[Any] = []
        for row in table.rows:
            where = table.where(row)
            texts = columns.read(row, where)
            if self.task != TEXTS and texts and not "".join(filter(None, texts)).strip():
                texts = None  # a prediction for a blank text would say nothing
            examples.append(texts and Labelled(*texts, None, where))
        return examples

    def _words(self, table: Table, row: Any, column: str) -> Tagged | None:
        if is_absent(row.cells.get(column)):
            return None
        words = words_cell(row, table.where(row), column)
        text, offsets = joined(words)
        return Tagged(text, words, offsets, None, table.where(row)) if words else None


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
) -> Data:
    """Open a source of texts or examples.

    `source` is the path of a file (a pattern such as `data/train-*.parquet`, a folder, or `-` for
    standard input), a pandas data frame, a pyarrow table, or a list of texts, dictionaries or
    tuples. The task is detected by default; "text" reads texts only. `columns` assigns columns to
    roles (`text`, `pair`, `label`, `score`, `tokens`, `tags`, ...) if their names do not; otherwise
    columns with the names in `usual` are used if the source has them. `header=False` means that the
    first row does not contain names. `label_names` are the names of labels that are numbers from 0.
    """
    if task not in (None, TEXTS):
        known_task(str(task))
    named = {role: name for role, name in (columns or {}).items() if name}
    for role in named:
        if role not in (roles := (*NAMES, "pair")):
            known = ", ".join(roles)
            raise BertsmithError(
                f"no role {role!r} of columns{nearest(role, roles)}; known: {known}"
            )
    options = Options(named, header, encoding, format, split, skip_ragged, usual or {})
    return Data(source, task, options, label_names, ledger)


def read_data(source: Any, task: str | None = None, **options: Any) -> Dataset[Any]:
    """Return all examples of a source; `options` are those of `open_data`."""
    return open_data(source, task, **options).read()


def read_texts(source: Any, **options: Any) -> list[str]:
    """Return all texts of a source; `options` are those of `open_data`."""
    return list(open_data(source, TEXTS, **options).texts())


def _words_column(table: Table, finder: Finder) -> str | None:
    """A column of lists of words, or of words between spaces where there is no column of texts."""
    text = Finder(table, finder.given).known("text")
    column = Finder(table, finder.given).known("tokens")
    lists = column is not None and any(
        isinstance(v, list | tuple) for v in sample(table, column, 20)
    )
    if column is None or (text not in (None, column) and not lists):
        return None
    return finder.needed("tokens")


def _related(table: Table, given: Mapping[str, str]) -> bool:
    """Are there texts that belong together, rather than scores?"""
    has = {role: Finder(table, given).known(role) for role in ("positive", "score")}
    return has["positive"] is not None or has["score"] is None


def _alternatives(table: Table, finder: Finder, task: str) -> tuple[str, ...]:
    """Other columns that could be the label or the score."""
    if task not in ("classification", "multilabel", "regression", "similarity"):
        return ()
    others = [*finder.candidates("label"), *finder.candidates("score")]
    return tuple(name for name in dict.fromkeys(others) if sample(table, name, 1))
