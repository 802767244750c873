"""Rows of texts or pairs of texts with one label each."""

from dataclasses import dataclass

from bertsmith.data.columns import Finder, plain
from bertsmith.data.tables import Row, Where
from bertsmith.tasks.cells import (
    TextReading,
    class_cell,
    class_names,
    label_column,
    labelled_texts,
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
        return self.label

    @property
    def label_names(self) -> tuple[str, ...]:
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

    def read(self, rows: Rows, labelled: bool) -> list[Labelled | None]:
        column = rows.finder.named("label")
        texts = text_columns(rows.finder)
        column = column or label_column(rows.finder)
        classes = class_names(rows, column)

        def label(row: Row, where: Where) -> str | None:
            return column and class_cell(row.cells.get(column), where, column, classes)

        # Test files of known benchmarks hide their labels: all are -1.
        if column and all(str(row.cells.get(column)) == "-1" for row in rows.table.rows):
            column = None
        examples = labelled_texts(rows, texts, label, Labelled)
        if plain(column or "") == "gold_label":  # of SNLI and MNLI; "-": annotators disagreed
            agreed = [one for one in examples if one is None or one.label != "-"]
            unsure = len(examples) - len(agreed)
            rows.ledger.note("rows without a majority label (-), left out", unsure)
            return agreed
        return examples

    def unlabelled(self, text: str, pair: str | None, where: Where) -> Labelled:
        return Labelled(text, pair, None, where)


READING = ClassificationReading()
