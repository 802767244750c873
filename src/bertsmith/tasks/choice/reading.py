"""Multiple choice (SWAG, OpenBookQA, COPA, …) from tables with one row per question."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bertsmith.data.columns import Finder, is_list, plain
from bertsmith.data.tables import Row, Table, Where, is_absent, list_cell, text_cell
from bertsmith.errors import BertsmithError
from bertsmith.numbers import parse_whole, shown
from bertsmith.tasks.labelling import Cells, Choose
from bertsmith.tasks.reading import Reading, Rows, TaskExample, TaskGuess

LETTERED = re.compile(r"\(([A-Z0-9])\)")  # OpenBookQA's table: (A) one (B) another
KEYS = "ABCDEFGHIJ"
NUMBERED = ("ending", "choice", "option", "answer")  # choices in columns of their own
# COPA asks one of two questions, by a word.
ASKED = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}


@dataclass(frozen=True, slots=True)
class ChoiceExample(TaskExample):
    """A prompt and several choices, one of them correct."""

    prompt: str
    options: tuple[str, ...]
    label: int | None  # which of them, from 0
    where: Where

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.prompt, *self.options)

    @property
    def labelled(self) -> bool:
        return self.label is not None


class OwnChoices(Choose):
    """The number of one of an example's own choices."""

    named = False

    def inputs(self, example: Any) -> Cells:
        return {"prompt": example.prompt, "choices": list(example.options)}

    def choices(self, example: Any) -> list[str]:
        return list(example.options)

    def cell(self, answer: Any, example: Any, labels: Sequence[str]) -> int:
        if answer not in example.options:
            raise BertsmithError(f"not among the choices: {str(answer)[:100]!r}")
        return int(example.options.index(answer))

    def answer(self, cells: Mapping[str, Any]) -> str:
        return str(cells["choices"][cells["label"]])

    def suggested(self, prediction: Any) -> str:
        return str(prediction.output["text"])


class ChoiceReading(Reading):
    """Prompts with several choices."""

    name, order, about = "choice", 60, "one of several choices"
    roles: ClassVar = {
        "prompt": (
            *("sent1", "ctx", "question_stem", "premise", "context", "passage", "article"),
            *("question", "prompt"),
        ),
        "options": ("choices", "endings", "options", "answers"),
        "answer": ("answer_key", "answerkey", "label", "answer", "gold", "correct"),
    }
    headings = frozenset(f"{word}{number}" for word in NUMBERED for number in range(10))
    windows = False
    labelling = OwnChoices()

    def suits(self, finder: Finder) -> TaskGuess | None:
        table, names = finder.table, finder.by_plain
        listed = {"prompt", "options"} <= names.keys() and is_list(table, names["options"])
        named = finder.given.keys() & {"prompt", "options"} or names.keys() & {"choices", "endings"}
        if named or listed or finder.numbered(NUMBERED) or nested_choices(table):
            return TaskGuess(0.9, "it has choices")
        return None

    def read(self, rows: Rows, labelled: bool) -> list[ChoiceExample | None]:
        """Rows with a prompt, the choices (in one column or several) and which of them is right."""
        table, finder = rows.table, rows.finder
        nested = nested_choices(table)
        columns = [] if "options" in finder.given else finder.numbered(NUMBERED)
        if columns:
            finder.note("options", f"{columns[0]} to {columns[-1]}", *columns)
        prompt = finder.note("prompt", nested) if nested else finder.needed("prompt")
        question = _question(finder, prompt)
        column = "" if columns or nested else finder.needed("options")
        answer = finder.known("answer")
        start_column = finder.by_plain.get("sent2") if plain(prompt) == "sent1" else None  # SWAG's
        if start_column:
            finder.used.add(start_column)
        examples: list[ChoiceExample | None] = []
        for row, where in rows:
            cell = row.cells.get(prompt)
            keys: Sequence[str] = ()
            if is_absent(cell):
                examples.append(None)
                continue
            if nested:
                if not isinstance(cell, dict):
                    raise BertsmithError(f"{where}: {prompt!r} has no stem and choices")
                options, keys = _listed(cell.get("choices"), where, "choices")
                cell = cell.get("stem")
            elif columns:
                options = [text_cell(row.cells.get(name), where, name) for name in columns]
            else:
                options, keys = _listed(row.cells.get(column), where, column)
            if start_column:
                start = text_cell(row.cells.get(start_column), where, start_column)
                options = [f"{start} {option}".strip() for option in options]
            if len(options) < 2:
                raise BertsmithError(f"{where}: {len(options)} choices; at least two are needed")
            text = text_cell(cell, where, prompt)
            if question:
                asked = text_cell(row.cells.get(question), where, question)
                text = f"{text} {ASKED.get(asked.strip().lower(), asked)}".strip()
            label = _label(row, answer, options, keys or KEYS, where)
            own = label if labelled else None
            examples.append(ChoiceExample(text, tuple(options), own, where))
        return examples

    def units(self, example: Any) -> list[tuple[str, ...]]:
        return [(example.prompt, option) for option in example.options]

    def lint(self, splits: Mapping[str, Any]) -> Iterator[Any]:
        from bertsmith.tasks.check.findings import Finding, finding

        for name, dataset in splits.items():
            rows = dataset.examples
            places = Counter(one.label for one in rows if one.label is not None)
            place, times = next(iter(places.most_common(1)), (0, 0))
            if len(rows) >= 20 and times > 0.8 * places.total():
                fraction = times / places.total()
                what = f"{name}: {fraction:.1%} of the correct choices are number {place + 1}"
                advice = "a model would learn the position; shuffle the choices"
                yield Finding("warning", "choice-place", what, times, (), advice)
            twice = [one.where for one in rows if len(set(one.options)) < len(one.options)]
            what = "examples with two equal choices"
            yield from finding("warning", "same-choice", name, what, twice)
            widths = Counter(len(one.options) for one in rows)
            if len(widths) > 1:
                spoken = ", ".join(f"{n:,} with {width}" for width, n in sorted(widths.items()))
                yield Finding("note", "choice-count", f"{name}: {spoken} choices", len(widths))


def nested_choices(table: Table) -> str | None:
    """The column of OpenBookQA's jsonl that holds {"stem": ..., "choices": [...]}."""
    first = table.rows[0].cells if table.rows else {}
    nested = (n for n, v in first.items() if isinstance(v, dict) and {"stem", "choices"} <= set(v))
    return next(nested, None)


def _question(finder: Finder, prompt: str) -> str | None:
    """A question beside the prompt (COPA's cause or effect, RACE's question), which is joined."""
    question = finder.by_plain.get("question")
    if question is None or question in finder.used or "prompt" in finder.given:
        return None
    finder.note("prompt", f"{prompt} + {question}", prompt, question)
    return question


def _listed(value: Any, where: Where, column: str) -> tuple[list[str], Sequence[str]]:
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        labels = value.get("label")
        keys = [str(key) for key in labels] if isinstance(labels, list) else []
        return [text_cell(text, where, column) for text in value["text"]], keys
    if isinstance(value, str) and LETTERED.search(value) and not value.strip().startswith("["):
        return _lettered(value)
    cells = list_cell(value, where, column)
    if cells and all(isinstance(one, dict) for one in cells):
        keys = [str(one.get("label", "")) for one in cells]
        return [text_cell(one.get("text"), where, column) for one in cells], keys
    return [text_cell(one, where, column) for one in cells], ()


def _lettered(value: str) -> tuple[list[str], Sequence[str]]:
    """(A) one (B) another: only letters in their order begin a choice, so that it may hold some."""
    marks: list[re.Match[str]] = []
    for match in LETTERED.finditer(value):
        before = ord(marks[-1][1]) if marks else ord(match[1]) - 1
        if ord(match[1]) == before + 1:
            marks.append(match)
    ends = [*(mark.start() for mark in marks[1:]), len(value)]
    options = [value[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)]
    return options, [mark[1] for mark in marks]


def _label(
    row: Row, answer: str | None, options: list[str], keys: Sequence[str], where: Where
) -> int | None:
    """Which choice is right: by its letter, its number from 0, or its words."""
    value = row.cells.get(answer) if answer else None
    if is_absent(value) or value == "" or value == -1 or value == "-1":
        return None
    number = parse_whole(value) if isinstance(value, float) else None
    spelled = text_cell(value if number is None else number, where, str(answer)).strip()
    for names in (list(keys), [str(place) for place in range(len(options))], options):
        if spelled in names and names.index(spelled) < len(options):
            return names.index(spelled)
    raise BertsmithError(f"{where}: {answer!r} is {shown(spelled)}, not one of the choices")


READING = ChoiceReading()
