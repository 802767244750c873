"""Roles of columns: known names, names given by the user, and the tasks they fit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from bertsmith.data.tables import Row, Table, is_absent, sample, shown, text_cell
from bertsmith.errors import BertsmithError
from bertsmith.numbers import parse_number
from bertsmith.tasks.examples import Where

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
NAMES: dict[str, tuple[str, ...]] = {
    "text": (
        *("text", "sentence", "sentence1", "premise", "content", "review", "review_text"),
        *("tweet", "comment", "comment_text", "document", "utterance", "message", "body"),
        *("claim", "question", "query", "headline", "description", "title", "input", "texts"),
    ),
    "label": (
        *("label", "labels", "gold_label", "category", "class", "intent", "target", "sentiment"),
        *("topic", "quality", "is_duplicate", "polarity", "emotion", "coarse_label", "rating"),
        *("stars", "y", "output", "categories", "classes", "label_text", "evidence_label"),
        *("entailment_label", "entailment_judgment"),
    ),
    "score": (
        *("score", "similarity", "similarity_score", "relatedness_score", "stars", "rating"),
        *("label", "labels", "target", "value", "y"),
    ),
    "tokens": ("tokens", "words", "token", "word", "form", "sentence"),
    "tags": (
        *("ner_tags", "tags", "ner", "labels", "label", "pos_tags", "upos", "pos", "xpos"),
        *("chunk_tags", "tag", "bio_tags"),
    ),
    "spans": ("spans", "entities", "ents", "label", "labels"),
    "question": ("question", "query"),
    "passage": ("context", "passage", "paragraph", "review", "document", "text", "article"),
    "answers": ("answers", "answer", "human_ans_spans", "answer_text", "detected_answers"),
    "start": ("answer_start", "human_ans_indices", "start", "start_position"),
    "id": ("id", "qid", "question_id", "q_review_id", "uid", "guid", "idx", "index", "pairid"),
    "anchor": ("anchor", "query", "question", "sentence", "sent0", "text"),
    "positive": ("positive", "pos", "positives", "sent1", "answer"),
    "negative": ("negative", "neg", "negatives", "hard_neg", "hard_negative"),
    "prompt": (
        *("sent1", "ctx", "question_stem", "premise", "context", "passage", "article"),
        *("question", "prompt"),
    ),
    "options": ("choices", "endings", "options", "answers"),
    "answer": ("answer_key", "answerkey", "label", "answer", "gold", "correct"),
}
KNOWN = {name for names in NAMES.values() for name in names}
KNOWN |= {name for couple in COUPLES for name in couple}
NUMBERED = ("ending", "choice", "option", "answer")  # choices in columns of their own
KNOWN |= {f"{word}{number}" for word in NUMBERED for number in range(10)}
# Names of columns that are also values of labels: alone they make no header.
LABEL_VALUES = {"positive", "negative", "pos", "neg", "y", "answer", "question", "title", "value"}
LABEL_VALUES |= {"neutral", "start", "word", "body", "description", "sentiment", "emotion", "topic"}
YES_NO = {"true", "false", "yes", "no", "0", "1", "t", "f", "y", "n"}


def plain(name: str) -> str:
    """A column's name as the tables above have it: small letters, no spaces."""
    return re.sub(r"[\s-]+", "_", name[:200].strip().lower())


class TextColumns(NamedTuple):
    """The columns of one text or two; WiC's has the word that it asks about before the first."""

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


class Finder:
    """Finds columns of one table, by what a person named and by the names that are known."""

    def __init__(self, table: Table, given: Mapping[str, str]) -> None:
        self.table, self.given = table, given
        self.by_plain: dict[str, str] = {}
        for name in table.names:
            self.by_plain.setdefault(plain(name), name)
        self.columns: dict[str, str] = {}  # role → column, as it is reported
        self.used: set[str] = set()

    def named(self, role: str) -> str | None:
        """The column that a person named for this role."""
        name = self.given.get(role)
        if name is None:
            return None
        if name in self.table.names:
            return self.note(role, name)
        if plain(name) in self.by_plain:
            return self.note(role, self.by_plain[plain(name)])
        near = get_close_matches(name[:100], self.table.names[:1000], 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise BertsmithError(
            f"{self.table.path}: no column {name[:60]!r} for the {role}; "
            f"it has {shown(self.table.names)}{hint}"
        )

    def known(self, role: str) -> str | None:
        """The column that was named, or the first known one, or None."""
        name = self.named(role)
        if name is None:
            name = next(iter(self.candidates(role)), None)
        return None if name is None else self.note(role, name)

    def candidates(self, role: str) -> list[str]:
        """The columns that are not used yet whose names fit a role, the likeliest first."""
        places = (self.by_plain.get(name) for name in NAMES[role])
        return [place for place in places if place and place not in self.used]

    def needed(self, role: str) -> str:
        """The column for a role, or an error that says how to name it."""
        name = self.known(role)
        if name is None:
            has = shown(self.table.names)
            what = f"its columns are {has}" if self.table.header else self._headerless()
            raise BertsmithError(
                f"{self.table.path}: cannot tell which column holds the {role}: {what}; "
                f"name it with --column {role}=NAME"
            )
        return name

    def texts(self) -> TextColumns:
        """The column of texts, that of the second texts if there is one, and WiC's word."""
        text, pair = self.named("text"), self.named("pair")
        if text is None:
            for first, second in COUPLES:
                here, there = self.by_plain.get(first), self.by_plain.get(second)
                if here and there and not {here, there} & self.used:
                    return self._couple(here, there)
            text = self.needed("text")
        elif pair is None and (question := self.by_plain.get("question")) == text:
            # The passage beside a question is never dropped.
            passage = self.by_plain.get("passage") or self.by_plain.get("context")
            pair = self.note("pair", passage) if passage and question else None
        return TextColumns(text, pair)

    def single(self, columns: TextColumns) -> TextColumns:
        """The first column alone, for what reads one text."""
        self.columns.pop("pair", None)
        self.used -= {columns.pair or "", columns.word or ""}
        return TextColumns(self.note("text", columns.text))

    def _couple(self, text: str, pair: str) -> TextColumns:
        word = self.by_plain.get("word") if plain(text) == "sentence1" else None
        self.note("text", f"{word}: {text}" if word else text, *filter(None, (word, text)))
        return TextColumns(text, self.note("pair", pair), word)

    def label(self) -> str | None:
        """The column of labels; `answer` too, where it says yes or no (as BoolQ's does)."""
        column = self.known("label")
        if (
            column is None
            and (answer := self.by_plain.get("answer"))
            and self.says_yes_or_no(answer)
        ):
            column = self.note("label", answer)
        return column

    def says_yes_or_no(self, column: str) -> bool:
        """Does a column hold only true and false, or yes and no?"""
        values = {str(value).strip().lower() for value in sample(self.table, column)}
        return bool(values) and values <= YES_NO

    def numbered(self) -> list[str]:
        """Columns such as ending0, ending1, ... in the order of their numbers."""
        for word in NUMBERED:
            pattern = re.compile(rf"{word}_?([0-9]{{1,3}})")
            hits = [
                (int(m[1]), name)
                for key, name in self.by_plain.items()
                if (m := pattern.fullmatch(key))
            ]
            if len(hits) > 1:
                return [name for _, name in sorted(hits)]
        return []

    def several(self, role: str) -> list[str]:
        """The columns of a role: its own, and numbered ones such as negative_1, negative_2."""
        first = self.known(role)
        if role in self.given:
            return [first] if first else []
        names = "|".join(map(re.escape, NAMES[role]))
        rest = [
            name
            for key, name in self.by_plain.items()
            if name not in self.used and re.fullmatch(rf"({names})_?[0-9]{{1,4}}", key)
        ]
        columns = [*([first] if first else []), *rest]
        if rest:
            self.note(role, ", ".join(columns), *columns)
        return columns

    def note(self, role: str, shown: str, *columns: str) -> str:
        """Remember which column (or which columns, by what they are shown as) a role has."""
        self.columns[role] = shown
        self.used.update(columns or (shown,))
        return shown

    @property
    def unused(self) -> tuple[str, ...]:
        """The columns that no role has."""
        return tuple(name for name in self.table.names if name not in self.used)

    def _headerless(self) -> str:
        return (
            f"the first line is no header that is known, so they are 1 to {len(self.table.names)}"
        )


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
    if len(names) == 2 and min(kinds) < max(kinds) and min(kinds) <= max(2, len(values[0]) // 2):
        text, label = (0, 1) if kinds[0] > kinds[1] else (1, 0)
        return {"text": names[text], "label": names[label]}
    if len(names) == 2:  # as many labels as texts: those of more words are the texts
        words = [sum(len(value.split()) for value in column) for column in values]
        if words[0] != words[1]:
            text, label = (0, 1) if words[0] > words[1] else (1, 0)
            return {"text": names[text], "label": names[label]}
    marks = "".join(values[2]) if len(names) == 4 else ""
    if len(names) == 4 and set(values[1]) <= {"0", "1"} and not re.search(r"[^\W_]", marks):
        return {"text": names[3], "label": names[1]}
    return {}


def is_list(table: Table, name: str) -> bool:
    """Does a column hold lists?"""
    values = sample(table, name, 20)
    return bool(values) and all(
        isinstance(value, list | tuple)
        or (
            isinstance(value, str) and value.strip().startswith("[") and value.strip().endswith("]")
        )
        for value in values
    )


def holds_spans(table: Table, name: str) -> bool:
    """Does a column hold annotated spans: lists of (start, end, label) or of objects?"""
    values = [value for value in sample(table, name, 200) if value]
    return bool(values) and all(
        isinstance(value, list) and all(map(_is_span, value[:20])) for value in values
    )


def _is_span(value: Any) -> bool:
    if isinstance(value, dict):
        return bool({"start", "start_offset"} & set(value)) and "label" in value
    return isinstance(value, list | tuple) and len(value) == 3 and isinstance(value[2], str)


# ------------------------------------------------------------------ tasks


def guess_task(table: Table, given: Mapping[str, str]) -> tuple[str, str]:
    """The task that columns are made for, and why; raises where they do not tell."""
    finder = Finder(table, given)
    named, names = set(given), finder.by_plain
    if spans_column(table, given):
        return "tagging", "it has texts with spans"
    if named & {"tokens", "tags"} or (
        _has_lists(table, given, "tokens") and _has(table, given, "tags")
    ):
        return "tagging", "it has words and tags"
    if named & {"prompt", "options"} or has_choices(finder):
        return "choice", "it has choices"
    passage = next((names[n] for n in ("context", "passage", "paragraph") if n in names), None)
    if named & {"question", "passage", "answers"} or "human_ans_spans" in names:
        return "answering", "it has questions and passages"
    if passage and "question" in names:
        answers = Finder(table, given).known("answers")
        if answers is None or not finder.says_yes_or_no(answers):
            if answers is not None or not _has(table, given, "label"):
                return "answering", "it has questions and passages"
    if named & {"anchor", "positive"} or {"anchor", "positive"} <= set(names):
        return "similarity", "it has texts that belong together"
    if "score" in named:
        return "regression", "a column of scores was named"
    what = "texts" if finder.texts().pair is None else "pairs of texts"
    column = finder.label()
    if column is None or (what != "texts" and "score" in names and "label" not in named):
        if "score" in names:
            return "regression", f"it has {what} and scores"
        if column is None and what != "texts" and finder.candidates("score"):
            return "regression", f"it has {what} and scores"
        return "classification", f"it has {what}, and no labels"
    if is_list(table, column):
        return "multilabel", f"it has {what} and lists of labels"
    numbers = [parse_number(value) for value in sample(table, column)]
    if numbers and all(n is not None for n in numbers) and any(n % 1 for n in numbers if n):
        return "regression", f"it has {what}, and {column!r} holds fractions"
    return "classification", f"it has {what} and labels"


def has_choices(finder: Finder) -> bool:
    """Do the columns look like questions with choices?"""
    if finder.numbered() or nested_choices(finder.table):
        return True
    names = finder.by_plain
    if "prompt" in names and "options" in names and is_list(finder.table, names["options"]):
        return True
    return "choices" in names or "endings" in names


def nested_choices(table: Table) -> str | None:
    """The column of OpenBookQA's jsonl that holds {"stem": ..., "choices": [...]}."""
    first = table.rows[0].cells if table.rows else {}
    nested = (n for n, v in first.items() if isinstance(v, dict) and {"stem", "choices"} <= set(v))
    return next(nested, None)


def spans_column(table: Table, given: Mapping[str, str]) -> str | None:
    """The column of annotated spans of texts, as spaCy, Prodigy and doccano write them."""
    finder = Finder(table, given)
    if named := finder.named("spans"):
        return named
    if not _has(table, given, "text") or given.keys() & {"label", "tokens", "tags"}:
        return None
    return next((n for n in finder.candidates("spans") if holds_spans(table, n)), None)


def _has(table: Table, given: Mapping[str, str], role: str) -> bool:
    return Finder(table, given).known(role) is not None


def _has_lists(table: Table, given: Mapping[str, str], role: str) -> bool:
    name = Finder(table, given).known(role)
    return name is not None and is_list(table, name)
