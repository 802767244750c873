"""Rows of texts or pairs of texts with one label each."""

from dataclasses import dataclass

from bertsmith.data.columns import Finder, plain
from bertsmith.data.tables import Where
from bertsmith.tasks.cells import (
    TEXTLESS,
    TextReading,
    class_cell,
    class_names,
    label_column,
    text_columns,
    texts_and_label,
)
from bertsmith.tasks.labelling import Choose
from bertsmith.tasks.reading import Rows, TaskGuess, TextExample


@dataclass(frozen=True, slots=True)
class Labelled(TextExample):
    """A text, or a pair of texts, of one class."""

    label: str | None  # None: not in the file
    where: Where

    @property
    def gold(self) -> str | None:
        """The label."""
        return self.label

    @property
    def label_names(self) -> tuple[str, ...]:
        """The label, if there is one."""
        return () if self.label is None else (self.label,)


class ClassificationReading(TextReading):
    """One label for a text or a pair of texts."""

    name, order, about = "classification", 10, "one label for a text or a pair of texts"
    target = "label"
    classes = True
    labelling = Choose()

    def suits(self, finder: Finder) -> TaskGuess | None:
        """Every table with texts can be for it, if it is for no other task."""
        if (contents := texts_and_label(finder)) is None:
            return None
        what, column = contents
        if column is None:
            return TaskGuess(0.1, f"it has {what}, and no labels")
        return TaskGuess(0.3, f"it has {what} and labels")

    def examples(self, rows: Rows) -> list[Labelled]:
        """Texts or pairs, each with one label, or none where the file has no column of them."""
        table, finder = rows.table, rows.finder
        column = finder.named("label")
        texts = text_columns(finder)
        column = column or label_column(finder)
        classes = class_names(rows, column)
        # Test files of known benchmarks hide their labels: all are -1.
        hidden = column is not None and all(
            str(row.cells.get(column)) == "-1" for row in table.rows
        )
        agreed = column is not None and plain(column) == "gold_label"
        examples = []
        for row, where in rows:
            label = None
            if column is not None and not hidden:
                label = class_cell(row.cells.get(column), where, column, classes)
            if agreed and label == "-":  # in SNLI and MNLI: annotators disagreed
                rows.ledger.note("rows without a majority label (-), left out")
                continue
            both = texts.read(row, where)
            if both is None:
                rows.ledger.note(TEXTLESS)
                continue
            examples.append(Labelled(*both, label, where))
        return examples

    def unlabelled(self, text: str, pair: str | None, where: Where) -> Labelled:
        """An example without a label."""
        return Labelled(text, pair, None, where)


READING = ClassificationReading()
