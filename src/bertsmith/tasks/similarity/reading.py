"""Rows of texts that belong together, or of pairs with a score of their similarity."""

from dataclasses import dataclass
from typing import Any, ClassVar

from bertsmith.data.columns import Finder
from bertsmith.data.tables import Where, is_absent, list_cell, text_cell
from bertsmith.errors import BertsmithError
from bertsmith.numbers import parse_number
from bertsmith.tasks.cells import SCORE, TEXTS, TextColumns, column_texts, text_columns
from bertsmith.tasks.reading import Rows, TaskExample, TaskGuess
from bertsmith.tasks.regression.reading import ScoreReading


@dataclass(frozen=True, slots=True)
class Related(TaskExample):
    """Texts that belong together, and texts that do not: any number of both for an anchor."""

    anchor: str
    positives: tuple[str, ...]  # at least one
    negatives: tuple[str, ...]
    where: Where
    scores: tuple[float, ...] = ()  # a teacher's, of all positives and negatives; or none

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.anchor, *self.positives, *self.negatives)

    @property
    def labelled(self) -> bool:
        """Texts that belong together are all that there is to learn."""
        return True


class SimilarityReading(ScoreReading):
    """Texts that belong together, or how near two texts are."""

    name, order, about = "similarity", 70, "texts that belong together, or how near two texts are"
    roles: ClassVar = {
        **TEXTS,
        "score": SCORE,
        "anchor": ("anchor", "query", "question", "sentence", "sent0", "text"),
        "positive": ("positive", "pos", "positives", "sent1", "answer"),
        "negative": ("negative", "neg", "negatives", "hard_neg", "hard_negative"),
        "scores": ("scores", "teacher_scores"),
    }

    def suits(self, finder: Finder) -> TaskGuess | None:
        chosen = finder.given.keys() & {"anchor", "positive"}
        if chosen or {"anchor", "positive"} <= finder.by_plain.keys():
            return TaskGuess(0.7, "it has texts that belong together")
        return None

    def read(self, rows: Rows, labelled: bool) -> list[Any | None]:
        """Texts that belong together, and perhaps some that do not; or pairs with scores."""
        finder = rows.finder
        positive, score = finder.peek("positive"), finder.peek("score")
        if positive is None and score is not None:
            return super().read(rows, labelled)
        anchor, positives = finder.needed("anchor"), finder.several("positive")
        if not positives:
            finder.needed("positive")  # says what is missing
        negatives, taught = finder.several("negative"), finder.known("scores")
        examples = list[Any]()
        for row, where in rows:
            near = column_texts(row, positives, where)
            far = column_texts(row, negatives, where)
            if is_absent(row.cells.get(anchor)) or not near:
                examples.append(None)
                continue
            query = text_cell(row.cells[anchor], where, anchor)
            scores = scores_cell(row.cells.get(taught), where, len(near + far)) if taught else ()
            examples.append(Related(query, tuple(near), tuple(far), where, scores))
        return examples

    def input_columns(self, rows: Rows) -> TextColumns:
        finder = rows.finder
        if {"anchor", "positive"} <= {*finder.given, *finder.by_plain}:
            return TextColumns(finder.needed("anchor"), finder.needed("positive"))
        return text_columns(finder)

    def units(self, example: Any) -> list[tuple[str, ...]]:
        return [(text,) for text in example.texts]


def scores_cell(value: Any, where: Where, count: int) -> tuple[float, ...]:
    """A teacher's scores: a number for each positive and each negative of the row, or none."""
    if is_absent(value):
        return ()
    cells = list_cell(value, where, "scores") if isinstance(value, str) else value
    numbers = [parse_number(one) for one in cells] if isinstance(cells, list | tuple) else []
    scores = tuple(one for one in numbers if one is not None)
    if len(scores) != count or len(numbers) != count:
        raise BertsmithError(
            f"{where}: 'scores' is not a list of {count} numbers, one for each positive and "
            "negative of the row"
        )
    return scores


READING = SimilarityReading()
