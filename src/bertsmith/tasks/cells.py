"""Columns and cells that several tasks read: texts, pairs of texts, labels and scores."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from bertsmith.data.columns import Finder, plain, says_yes_or_no
from bertsmith.data.delimited import ABSENT
from bertsmith.data.tables import Row, Table, Where, is_absent, list_cell, sample, text_cell
from bertsmith.errors import BertsmithError
from bertsmith.numbers import parse_whole
from bertsmith.tasks.reading import Reading, Rows, TaskExample, Unlabelled

# Two texts that belong together, as known data sets name them. The first that is there is used.
COUPLES = (
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("#1_string", "#2_string"),
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("text_1", "text_2"),
    ("sentence_a", "sentence_b"),
    ("question", "sentence"),
    ("claim", "evidence"),
    ("query", "document"),
    ("query", "passage"),
    ("question", "passage"),
    ("question", "context"),
    ("text", "text_pair"),
    ("text", "pair"),
)
TEXT = (
    *("text", "sentence", "sentence1", "premise", "content", "review", "review_text"),
    *("tweet", "comment", "comment_text", "document", "utterance", "message", "body"),
    *("claim", "question", "query", "headline", "description", "title", "input", "texts"),
)
LABEL = (
    *("label", "labels", "gold_label", "category", "class", "intent", "target", "sentiment"),
    *("topic", "quality", "is_duplicate", "polarity", "emotion", "coarse_label", "rating"),
    *("stars", "y", "output", "categories", "classes", "label_text", "evidence_label"),
    *("entailment_label", "entailment_judgment"),
)
SCORE = (
    *("score", "similarity", "similarity_score", "relatedness_score", "stars", "rating"),
    *("label", "labels", "target", "value", "y"),
)
TEXTS = {"text": TEXT, "pair": ()}  # a second text is known by the first: COUPLES
# Names of columns that are also values of labels: alone they make no header.
LABEL_VALUES = {"positive", "negative", "pos", "neg", "y", "answer", "question", "title", "value"}
LABEL_VALUES |= {"neutral", "start", "word", "body", "description", "sentiment", "emotion", "topic"}


class TextReading(Reading):
    """Reading of tasks whose examples are a text or a pair of texts."""

    roles: ClassVar[Mapping[str, tuple[str, ...]]] = {**TEXTS, "label": LABEL}
    headings = frozenset(name for couple in COUPLES for name in couple)
    blank: ClassVar[bool] = False  # is a blank text an input, too?
    pairs: ClassVar[bool] = True  # is a second text read?

    def input_columns(self, rows: Rows) -> TextColumns:
        """Return the columns of texts for predictions."""
        finder, columns = rows.finder, text_columns(rows.finder)
        if self.pairs:
            return columns
        finder.columns.pop("pair", None)
        finder.used -= {columns.pair or "", columns.word or ""}
        return TextColumns(finder.note("text", columns.text))

    def inputs(self, rows: Rows) -> list[Any | None]:
        """A text or pair for each row; None for blank texts, which have no useful prediction."""
        columns = self.input_columns(rows)
        examples: list[Any | None] = []
        for row, where in rows:
            texts = columns.read(row, where)
            if not self.blank and texts and not "".join(filter(None, texts)).strip():
                texts = None
            examples.append(texts and self.unlabelled(*texts, where))
        return examples

    def unlabelled(self, text: str, pair: str | None, where: Where) -> TaskExample:
        """An example without a label."""
        return Unlabelled(text, pair, where)


class TextColumns(NamedTuple):
    """The columns of a text or a pair; WiC's target word is put before the first text."""

    text: str
    pair: str | None = None
    word: str | None = None

    def read(self, row: Row, where: Where) -> tuple[str, str | None] | None:
        """The texts of a row; None where one of them is missing."""
        wanted = [name for name in (self.text, self.pair) if name is not None]
        values = [row.cells.get(name) for name in wanted]
        if any(map(is_absent, values)):
            return None
        texts = [text_cell(v, where, name) for v, name in zip(values, wanted, strict=True)]
        if self.word is not None and not is_absent(row.cells.get(self.word)):
            texts[0] = f"{text_cell(row.cells[self.word], where, self.word)}: {texts[0]}"
        return texts[0], texts[1] if len(texts) > 1 else None


def text_columns(finder: Finder) -> TextColumns:
    """The column of texts, that of the second texts if there is one, and WiC's word."""
    text, pair, names = finder.named("text"), finder.named("pair"), finder.by_plain
    if text is None:
        for first, second in COUPLES:
            here, there = names.get(first), names.get(second)
            if here and there and not {here, there} & finder.used:
                word = names.get("word") if plain(here) == "sentence1" else None
                finder.note("text", f"{word}: {here}" if word else here, here, word or here)
                return TextColumns(here, finder.note("pair", there), word)
        text = finder.needed("text")
    elif pair is None and (question := names.get("question")) == text:
        # The passage beside a question is never dropped.
        passage = names.get("passage") or names.get("context")
        pair = finder.note("pair", passage) if passage and question else None
    return TextColumns(text, pair)


def label_column(finder: Finder) -> str | None:
    """The column of labels, or `answer` if it holds yes and no (BoolQ)."""
    column, answer = finder.known("label"), finder.by_plain.get("answer")
    if column is None and answer and says_yes_or_no(finder.table, answer):
        column = finder.note("label", answer)
    return column


def texts_and_label(finder: Finder) -> tuple[str, str | None] | None:
    """What a table has, texts or pairs of texts, and its column of labels; None: no texts."""
    try:
        what = "texts" if text_columns(finder).pair is None else "pairs of texts"
        return what, label_column(finder)
    except BertsmithError:  # or a person named a column that is not there
        return None


def labelled_texts(
    rows: Rows, texts: TextColumns, label: Callable[[Row, Where], Any], kind: Callable[..., Any]
) -> list[Any | None]:
    """The example of each row, of a kind with a text, a second one, a label and a place."""
    # A label that cannot be read is an error, also beside a missing text.
    cells = [(label(row, where), texts.read(row, where), where) for row, where in rows]
    return [both and kind(*both, value, where) for value, both, where in cells]


def without_header(table: Table) -> dict[str, str]:
    """Detect the roles of columns in a file without a header.

    Two columns: the one with fewer different values is the label. Four, the second 0 or 1 and
    the third empty or a linguist's mark (*, ?, #): CoLA.
    """
    names = table.names
    values = [[str(row.cells.get(name)) for row in table.rows[:1000]] for name in names[:4]]
    if len(names) == 1:
        return {"text": names[0]}
    kinds = [len(set(column)) for column in values]
    if len(names) == 2:
        sizes = kinds
        if kinds[0] == kinds[1] or min(kinds) > max(2, len(values[0]) // 2):
            # About as many labels as texts: the texts have more words.
            sizes = [sum(len(value.split()) for value in column) for column in values]
        if sizes[0] != sizes[1]:
            text, label = (0, 1) if sizes[0] > sizes[1] else (1, 0)
            return {"text": names[text], "label": names[label]}
    marks = "".join(values[2]) if len(names) == 4 else ""
    if len(names) == 4 and set(values[1]) <= {"0", "1"} and not re.search(r"[^\W_]", marks):
        return {"text": names[3], "label": names[1]}
    return {}


def label_cell(value: Any, where: Where, column: str, classes: Sequence[str] | None) -> str | None:
    """A label by its name: numbers are looked up in the names of classes, where there are some."""
    if is_absent(value):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and parse_whole(value) is not None:
        value = int(value)
    name = text_cell(value, where, column).strip()
    number = parse_whole(name) if classes else None
    if classes and number is not None and re.fullmatch(r"-1|[0-9]+", name):
        if number >= len(classes):
            raise BertsmithError(f"{where}: label {number}, but there are {len(classes)} names")
        return classes[number] if number >= 0 else None
    return name or None


def class_cell(value: Any, where: Where, column: str, classes: Sequence[str] | None) -> str | None:
    """A label; None for spellings of a missing value, unless a class has that name."""
    name = label_cell(value, where, column, classes)
    return None if name in ABSENT and name not in (classes or ()) else name


def column_texts(row: Row, columns: Sequence[str], where: Where) -> list[str]:
    """The texts of several columns: a cell holds one, or a list, which a csv file has as JSON."""
    texts = []
    for column in columns:
        value = row.cells.get(column)
        if isinstance(value, str) and value.startswith('["') and value.endswith('"]'):
            value = list_cell(value, where, column)
        cells = value if isinstance(value, list | tuple) else [value]
        texts += [text_cell(cell, where, column) for cell in cells if not is_absent(cell)]
    return texts


def class_names(rows: Rows, column: str | None) -> Sequence[str] | None:
    """The class names of a column's numbers: as given, or from the file."""
    return rows.names or (rows.table.classes.get(column) if column else None)


def alternatives(finder: Finder) -> tuple[str, ...]:
    """Other columns that could be the label or the score."""
    others = [*finder.candidates("label"), *finder.candidates("score")]
    return tuple(name for name in dict.fromkeys(others) if sample(finder.table, name, 1))
