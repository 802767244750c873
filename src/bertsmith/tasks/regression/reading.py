"""Rows of texts or pairs of texts with a number each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from bertsmith.data.columns import Finder, is_list
from bertsmith.data.tables import Row, Where, is_absent, sample
from bertsmith.errors import BertsmithError
from bertsmith.numbers import parse_number, shown
from bertsmith.tasks.cells import (
    SCORE,
    TEXTS,
    TextReading,
    labelled_texts,
    text_columns,
    texts_and_label,
)
from bertsmith.tasks.labelling import Choose
from bertsmith.tasks.reading import Rows, TaskGuess, TextExample

LARGEST = 1e30  # scores, whose squared errors a model learns in float32


@dataclass(frozen=True, slots=True)
class Scored(TextExample):
    """A text, or a pair, with a number."""

    score: float | None
    where: Where

    @property
    def gold(self) -> float | None:
        return self.score


class ScoreReading(TextReading):
    """A number for a text or a pair."""

    roles: ClassVar[Mapping[str, tuple[str, ...]]] = {**TEXTS, "score": SCORE}
    target = "score"
    labelling = Choose("score", numeric=True)

    def read(self, rows: Rows, labelled: bool) -> list[Any | None]:
        column = rows.finder.named("score") or rows.finder.named("label")
        texts = text_columns(rows.finder)
        column = column or rows.finder.known("score")

        def score(row: Row, where: Where) -> float | None:
            return _score(row.cells.get(column), where, column) if column else None

        return labelled_texts(rows, texts, score, Scored)

    def lint(self, splits: Mapping[str, Any]) -> Iterator[Any]:
        from bertsmith.tasks.check.findings import Finding, finding

        train: list[float] = []
        for name, dataset in splits.items():
            scores = [one.gold for one in dataset.examples if one.gold is not None]
            if len(scores) > 1 and len(set(scores)) == 1:
                severity = "error" if name == "train" else "warning"
                what = f"{name}: every score is {scores[0]:g}"
                where = (dataset.examples[0].where,)
                yield Finding(severity, "one-score", what, len(scores), where)
            train = scores if name == "train" else train
        for name in (name for name in splits if train and name != "train"):
            low, high = min(train), max(train)
            scored = [one for one in splits[name].examples if one.gold is not None]
            places = [one.where for one in scored if not low <= one.gold <= high]
            what = f"scores outside train's range of {low:g} to {high:g}"
            yield from finding("warning", "score-range", name, what, places)


def _score(value: Any, where: Where, column: str) -> float | None:
    if is_absent(value) or value == "":
        return None
    score = parse_number(value)
    if score is None:
        raise BertsmithError(f"{where}: {column!r} is {shown(value)}, not a finite number")
    if abs(score) > LARGEST:
        raise BertsmithError(
            f"{where}: {column!r} is {shown(value)}, more than a model can output; scale "
            f"the scores to at most {LARGEST:g}"
        )
    return score


class RegressionReading(ScoreReading):
    """A number for a text or a pair."""

    name, order, about = "regression", 30, "a number for a text or a pair"

    def suits(self, finder: Finder) -> TaskGuess | None:
        given, names = finder.given, finder.by_plain
        if "score" in given:
            return TaskGuess(0.6, "a column of scores was named")
        if (texts_and_column := texts_and_label(finder)) is None:
            return None
        what, label = texts_and_column
        pairs = what != "texts"
        if "score" in names and (label is None or (pairs and "label" not in given)):
            return TaskGuess(0.5, f"it has {what} and scores")
        if label is None:
            scores = pairs and finder.candidates("score")
            return TaskGuess(0.5, f"it has {what} and scores") if scores else None
        numbers = [parse_number(value) for value in sample(finder.table, label)]
        fractions = None not in numbers and any(n % 1 for n in numbers if n)
        if not fractions or is_list(finder.table, label):
            return None
        return TaskGuess(0.4, f"it has {what}, and {label!r} holds fractions")


READING = RegressionReading()
