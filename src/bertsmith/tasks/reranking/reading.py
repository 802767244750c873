"""Rows of a query with passages: positives and negatives, or one passage with its grade."""

from dataclasses import dataclass
from typing import Any, ClassVar

from bertsmith.data.columns import Finder
from bertsmith.data.tables import Where, is_absent, text_cell
from bertsmith.errors import BertsmithError
from bertsmith.numbers import parse_number, shown
from bertsmith.tasks.cells import TextColumns, column_texts
from bertsmith.tasks.labelling import Cells, Choose
from bertsmith.tasks.reading import Reading, Rows, TaskExample, TaskGuess


@dataclass(frozen=True, slots=True)
class Passages(TaskExample):
    """A query and its passages, with a grade of each: 0 is not relevant."""

    query: str
    passages: tuple[str, ...]
    grades: tuple[float, ...] | None  # None: not in the file
    where: Where

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.query, *self.passages)

    @property
    def labelled(self) -> bool:
        """Is any passage relevant? Queries without one have no best ranking."""
        return self.grades is not None and max(self.grades) > 0


class Graded(Choose):
    """A grade of a passage for a query."""

    def inputs(self, example: Any) -> Cells:
        return {"query": example.query, "passage": example.passages[0]}


class RerankingReading(Reading):
    """Passages of a query."""

    name, order, about = "reranking", 25, "how relevant passages are to a query"
    labelling = Graded("grade", numeric=True)
    roles: ClassVar = {
        "query": ("query", "question", "search_query", "anchor"),
        "passage": ("passage", "document", "doc", "passage_text", "text", "context"),
        "grade": ("grade", "relevance", "rel", "relevance_grade", "label", "score"),
        "positive": ("positive", "positives", "pos", "positive_passages"),
        "negative": ("negative", "negatives", "neg", "negative_passages", "hard_negatives"),
    }

    def suits(self, finder: Finder) -> TaskGuess | None:
        """Queries with passages, by name: other texts that belong together make vectors."""
        names = finder.by_plain.keys()
        graded = {"grade", "relevance", "rel"} & names and {"passage", "document", "doc"} & names
        listed = {"positive", "positives", "pos"} & names
        if "grade" in finder.given or ("query" in names and (graded or listed)):
            return TaskGuess(0.75, "it has queries with passages")
        return None

    def examples(self, rows: Rows) -> list[Any]:
        listed = rows.finder.peek("positive") is not None
        return super().examples(rows) if listed else self._graded(rows)

    def read(self, rows: Rows, labelled: bool) -> list[Passages | None]:
        """A row for each query, with passages that are relevant and others."""
        finder, examples = rows.finder, list[Passages | None]()
        query = finder.needed("query")
        positives, negatives = finder.several("positive"), finder.several("negative")
        for row, where in rows:
            near = column_texts(row, positives, where)
            far = column_texts(row, negatives, where)
            if is_absent(row.cells.get(query)) or not near + far:
                examples.append(None)
                continue
            grades = (1.0,) * len(near) + (0.0,) * len(far) if labelled else None
            asked = text_cell(row.cells[query], where, query)
            examples.append(Passages(asked, (*near, *far), grades, where))
        return examples

    def _graded(self, rows: Rows) -> list[Any]:
        """A row for each passage; those of one query, wherever they are, are one example."""
        finder = rows.finder
        query, passage, grade = (finder.needed(role) for role in ("query", "passage", "grade"))
        columns = TextColumns(query, passage)
        queries: dict[str, list[tuple[str, float, Where]]] = {}
        for row, where in rows:
            texts = columns.read(row, where)
            if texts is None:
                rows.ledger.note(self.textless)
                continue
            value = row.cells.get(grade)
            number = parse_number(value)
            if number is None:
                raise BertsmithError(f"{where}: {grade!r} is {shown(value)}, not a finite number")
            queries.setdefault(texts[0], []).append((str(texts[1]), max(0.0, number), where))
        examples = []
        for text, graded in queries.items():
            passages, grades, places = zip(*graded, strict=True)
            examples.append(Passages(text, passages, grades, places[0]))
        return examples

    def inputs(self, rows: Rows) -> list[Any | None]:
        finder = rows.finder
        if finder.peek("positive") is not None:
            return self.read(rows, False)
        columns = TextColumns(finder.needed("query"), finder.needed("passage"))
        examples: list[Any | None] = []
        for row, where in rows:
            texts = columns.read(row, where)
            examples.append(texts and Passages(texts[0], (str(texts[1]),), None, where))
        return examples

    def units(self, example: Any) -> list[tuple[str, ...]]:
        return [(example.query, passage) for passage in example.passages]

    def kept_apart(self, examples: Any) -> tuple[str, list[list[str]]]:
        return "query", [[" ".join(one.query.casefold().split())] for one in examples]


READING = RerankingReading()
