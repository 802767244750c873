"""Extractive question answering: SQuAD's JSON (v1.1 and v2.0), and rows of question and passage."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from bertsmith.data.columns import Finder, says_yes_or_no
from bertsmith.data.tables import FileLayout, Row, Table, Where, is_absent, text_cell
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.numbers import parse_whole
from bertsmith.tasks.labelling import Cells, MarkSpans
from bertsmith.tasks.reading import Reading, Rows, TaskExample, TaskGuess

NO_ANSWER = "ANSWERNOTFOUND"  # at the end of SubjQA's passages without an answer
FEW = 4  # articles up to which questions are kept apart by passage


@dataclass(frozen=True, slots=True)
class Span:
    """A gold answer: passage[start:start + len(text)]; start is -1 if it is not in the passage."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class QuestionExample(TaskExample):
    """A question about a passage, with all gold answers; none if it is unanswerable."""

    id: str
    question: str
    passage: str
    answers: tuple[Span, ...] | None  # None: not in the file; (): it cannot be answered
    title: str
    where: Where

    @property
    def impossible(self) -> bool:
        return self.answers == ()

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.question, self.passage)

    @property
    def labelled(self) -> bool:
        return self.answers is not None


class Squad(FileLayout):
    """SQuAD's JSON, v1.1 and v2.0."""

    name = "squad"
    content = "SQuAD's layout"

    def fits_document(self, content: Any) -> bool:
        data = content.get("data") if isinstance(content, dict) else None
        articles = data if isinstance(data, list) else ()
        return any(isinstance(one, dict) and "paragraphs" in one for one in articles)

    def document(self, path: Path, content: Any, ledger: Ledger) -> Table:
        rows = []
        for number, one in enumerate(read_squad(path, content, ledger), 1):
            cells: dict[str, Any] = {"id": one.id, "title": one.title, "question": one.question}
            rows.append(Row(number, {**cells, "context": one.passage}, one))
        names = ("id", "title", "question", "context")
        columns = {"question": "question", "passage": "context", "answers": "answers"}
        return Table(path, names, rows, unit="question", layout=self.name, columns=columns)


def read_squad(path: Path, content: Mapping[str, Any], ledger: Ledger) -> list[QuestionExample]:
    """Every question of a SQuAD file."""
    examples: list[QuestionExample] = []
    for article in content["data"]:
        for paragraph in _listed(article, "paragraphs", path, len(examples)):
            for asked in _listed(paragraph, "qas", path, len(examples)):
                where = Where(str(path), len(examples) + 1, "question")
                passage = _string(paragraph, "context", where)
                gold = None
                if "answers" in asked or "is_impossible" in asked:
                    answers = [] if asked.get("is_impossible") else asked.get("answers") or []
                    if not isinstance(answers, list):
                        raise BertsmithError(f"{where}: 'answers' is not a list")
                    gold = tuple(_gold_span(one, passage, where, ledger) for one in answers)
                    if not gold and not asked.get("is_impossible"):
                        gold = None  # v1.1 has no questions without an answer: it was left out
                        ledger.note("questions without answers that are not marked as impossible")
                name = name_cell(asked.get("id"), len(examples) + 1)
                question, title = _string(asked, "question", where), article.get("title")
                title = name_cell(title, "")
                examples.append(QuestionExample(name, question, passage, gold, title, where))
    return examples


def _listed(holder: Any, key: str, path: Path, done: int) -> Iterator[dict[str, Any]]:
    value = holder.get(key) if isinstance(holder, dict) else None
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise BertsmithError(f"{path}: after question {done}, {key!r} is not a list of objects")
    return iter(value)


def _string(holder: Mapping[str, Any], key: str, where: Where) -> str:
    if not isinstance(holder.get(key), str):
        raise BertsmithError(f"{where}: no text field {key!r}")
    return text_cell(holder[key], where, key)


def name_cell(value: Any, default: object) -> str:
    """An id or a title as valid UTF-8 text; lone surrogates are replaced."""
    if not isinstance(value, str | int | float | bool) or value == "":
        return str(default)
    return str(value).encode("utf-8", "replace").decode() if isinstance(value, str) else f"{value}"


def _gold_span(answer: Any, passage: str, where: Where, ledger: Ledger) -> Span:
    """An answer of a file, {"text": ..., "answer_start": ...}; the start may be missing."""
    fields = answer if isinstance(answer, dict) else {}
    text, start = fields.get("text"), fields.get("answer_start")
    number = None if is_absent(start) else parse_whole(start)
    if not isinstance(text, str | int | float) or (number is None and not is_absent(start)):
        raise BertsmithError(f"{where}: an answer needs a text and an answer_start")
    return placed(text_cell(text, where, "answer"), number, passage, ledger)


def placed(text: str, start: int | None, passage: str, ledger: Ledger) -> Span:
    """An answer where its text stands: at `start`, else at the nearest place that has it."""
    if start is not None and start >= 0 and passage.startswith(text, start):
        return Span(text, start)
    places = [match.start() for match in re.finditer(re.escape(text), passage)] if text else []
    if not places:
        ledger.note("answers that do not occur in their passage: scored, not trained on")
        return Span(text, -1)
    if start is None:
        if len(places) > 1:
            ledger.note("answers without a position: their first occurrence is used")
        return Span(text, places[0])
    ledger.note("answers moved to their nearest occurrence")
    return Span(text, min(places, key=lambda place: abs(place - start)))


def _answers(
    value: Any, start: Any, passage: str, where: Where, ledger: Ledger
) -> tuple[Span, ...]:
    """The answers of a cell: SQuAD's objects, texts, or one text with its place beside it."""
    if isinstance(value, dict):  # as the `datasets` library stores SQuAD
        texts, places = value.get("text"), value.get("answer_start")
        if not isinstance(texts, list) or not isinstance(places, list) or len(texts) != len(places):
            raise BertsmithError(f"{where}: answers need as many texts as answer_starts")
        pairs = zip(texts, places, strict=True)
        value = [{"text": text, "answer_start": place} for text, place in pairs]
    if isinstance(value, list):
        if not all(isinstance(one, dict) for one in value):
            value = [{"text": text} for text in value]
        return tuple(_gold_span(one, passage, where, ledger) for one in value)
    text = text_cell(value, where, "answer").removesuffix(NO_ANSWER).rstrip()
    if not text:
        return ()
    numbers = re.findall(r"[0-9]+", "" if start is None else str(start)[:100])
    places = [number for number in map(parse_whole, numbers) if number is not None]
    if len(places) == 2 and text not in passage and passage[slice(*places)].strip():
        # Tokenised answers (ca n't) are spelled otherwise than the passage; the place is right.
        ledger.note("answers replaced by the spelling in their passage")
        return (Span(passage[slice(*places)], places[0]),)
    return (placed(text, places[0] if places else None, passage, ledger),)


class MarkAnswer(MarkSpans):
    """The answer in a passage; nothing where it has none."""

    named, at, text = False, 1, "context"

    def inputs(self, example: Any) -> Cells:
        return {"id": example.id, "question": example.question, "context": example.passage}

    def cell(self, answer: Any, example: Any, labels: Sequence[str]) -> Any:
        """Answers as SQuAD's rows have them."""
        return [
            {"text": example.passage[one["start"] : one["end"]], "answer_start": one["start"]}
            for one in super().cell(answer, example, ("answer",))
        ]

    def answer(self, cells: Mapping[str, Any]) -> Any:
        places = [(one["answer_start"], one["text"]) for one in cells.get(self.column) or ()]
        return [[start, start + len(text), "answer"] for start, text in places]

    def suggested(self, prediction: Any) -> Any:
        best = prediction.output["answers"][:1] if prediction.value else []
        return [[one["start"], one["end"], "answer"] for one in best]


class AnsweringReading(Reading):
    """Questions about passages, and their answers."""

    name, order, about = "answering", 50, "an answer that stands in a passage"
    roles: ClassVar = {
        "question": ("question", "query"),
        "passage": ("context", "passage", "paragraph", "review", "document", "text", "article"),
        "answers": ("answers", "answer", "human_ans_spans", "answer_text", "detected_answers"),
        "start": ("answer_start", "human_ans_indices", "start", "start_position"),
        "id": ("id", "qid", "question_id", "q_review_id", "uid", "guid", "idx", "index", "pairid"),
    }
    shared, textless = "passage", "rows without a question or a passage, left out"
    labelling = MarkAnswer("answers")
    layouts = (Squad(),)

    def suits(self, finder: Finder) -> TaskGuess | None:
        guess = TaskGuess(0.8, "it has questions and passages")
        names = finder.by_plain
        if finder.given.keys() & {"question", "passage", "answers"} or "human_ans_spans" in names:
            return guess
        if not {"context", "passage", "paragraph"} & names.keys() or "question" not in names:
            return None
        answers = finder.peek("answers")
        if answers is None:
            labelled = "label" in finder.given or finder.peek("label") is not None
            return None if labelled else guess
        return None if says_yes_or_no(finder.table, answers) else guess

    def examples(self, rows: Rows) -> list[QuestionExample]:
        """One example of all rows with the same question, with the answers of all of them."""
        examples: list[QuestionExample] = super().examples(rows)
        questions: dict[tuple[str, str, str], QuestionExample] = {}
        for example in examples:
            key = example.id, example.question, example.passage
            first = questions.setdefault(key, example)
            if example.answers is not None:
                spans = dict.fromkeys([*(first.answers or ()), *example.answers])
                questions[key] = replace(first, answers=tuple(spans))
        repeats = len(examples) - len(questions)
        rows.ledger.note("rows that repeat a question: their answers were added", repeats)
        return list(questions.values())

    def read(self, rows: Rows, labelled: bool) -> list[QuestionExample | None]:
        finder, ledger = rows.finder, rows.ledger
        question, passage = finder.needed("question"), finder.needed("passage")
        answers = finder.known("answers") if labelled else None
        starts = finder.known("start") if labelled else None
        id_column, title = finder.known("id"), finder.by_plain.get("title")
        if title:
            finder.used.add(title)
        examples: list[QuestionExample | None] = []
        for row, where in rows:
            if any(is_absent(row.cells.get(column)) for column in (question, passage)):
                examples.append(None)
                continue
            text = text_cell(row.cells[passage], where, passage)
            if text.endswith(NO_ANSWER):
                ledger.note(f"passages from whose end {NO_ANSWER} was removed")
                text = text.removesuffix(NO_ANSWER).rstrip()
            spans = None
            if answers is not None:
                start = row.cells.get(starts) if starts else None
                spans = _answers(row.cells.get(answers), start, text, where, ledger)
            asked = text_cell(row.cells[question], where, question)
            id_ = name_cell(row.cells.get(id_column) if id_column else None, row.number)
            article = name_cell(row.cells.get(title) if title else None, "")
            examples.append(QuestionExample(id_, asked, text, spans, article, where))
        return examples

    def kept_apart(self, examples: Sequence[Any]) -> tuple[str, list[list[str]]]:
        articles = len({one.title for one in examples}) > FEW
        keys = [[one.title if articles and one.title else one.passage] for one in examples]
        return "article" if articles else "passage", keys

    def lint(self, splits: Mapping[str, Any]) -> Iterator[Any]:
        from bertsmith.tasks.check.findings import Finding, finding

        for name, dataset in splits.items():
            rows = dataset.examples
            lost = [one.where for one in rows if any(span.start < 0 for span in one.answers or ())]
            severity = "error" if len(lost) > 0.5 * len(rows) else "warning"
            what = "questions with an answer that is not in the passage"
            advice = "scored, but not trained on"
            yield from finding(severity, "lost-answer", name, what, lost, advice)
            times = Counter(one.id for one in rows)
            twice = [one.where for one in rows if times[one.id] > 1]
            what = "questions with the id of another question"
            yield from finding("error", "same-id", name, what, twice, "ids must be unique")
            what = "questions with a blank answer"
            blank = [e.where for e in rows if not all(s.text.strip() for s in e.answers or ())]
            yield from finding("warning", "blank-answer", name, what, blank)
            if impossible := sum(one.impossible for one in rows):
                percent = f"{impossible / len(rows):.1%}"
                what = f"{name}: {percent} of the questions have no answer ({impossible:,})"
                yield Finding("note", "no-answer", what, impossible)


READING = AnsweringReading()
