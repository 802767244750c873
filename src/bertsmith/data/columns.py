"""Which column is what: the names that people use, and how a person says otherwise."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches

from bertsmith.data.rows import Table, sample, shown
from bertsmith.errors import BertsmithError

# Two texts that belong together, as known data sets name them. The first that is there wins.
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
    ),
    "score": (
        *("score", "similarity", "similarity_score", "relatedness_score", "stars", "rating"),
        *("label", "labels", "target", "value", "y"),
    ),
    "tokens": ("tokens", "words", "token", "word", "form", "sentence"),
    "tags": (
        *("ner_tags", "tags", "ner", "labels", "label", "pos_tags", "upos", "pos", "xpos"),
        *("chunk_tags", "tag", "bio_tags", "entities"),
    ),
    "question": ("question", "query"),
    "passage": ("context", "passage", "paragraph", "review", "document", "text", "article"),
    "answers": ("answers", "answer", "human_ans_spans", "answer_text", "detected_answers"),
    "start": ("answer_start", "human_ans_indices", "start", "start_position"),
    "id": ("id", "qid", "question_id", "q_review_id", "uid", "guid", "idx", "index", "pairid"),
    "anchor": ("anchor", "query", "question", "sentence", "sent0", "text"),
    "positive": ("positive", "pos", "positives", "sent1", "answer"),
    "negative": ("negative", "neg", "negatives", "hard_neg", "hard_negative"),
    "prompt": ("sent1", "ctx", "question_stem", "premise", "question", "prompt", "context"),
    "options": ("choices", "endings", "options", "answers"),
    "answer": ("answer_key", "answerkey", "label", "answer", "gold", "correct"),
}
KNOWN = {name for names in NAMES.values() for name in names}
KNOWN |= {name for couple in COUPLES for name in couple}
KNOWN |= {f"{word}{number}" for word in ("ending", "choice", "option") for number in range(10)}


def plain(name: str) -> str:
    """A column's name as the tables have it: small letters, no spaces."""
    return re.sub(r"[\s-]+", "_", name.strip().lower())


class Finder:
    """Finds columns of one table, by what a person said and by the names that are known."""

    def __init__(self, table: Table, given: Mapping[str, str]) -> None:
        self.table, self.given = table, given
        self.by_plain: dict[str, str] = {}
        for name in table.names:
            self.by_plain.setdefault(plain(name), name)
        self.found: dict[str, str] = {}  # role → column, as it is printed

    def said(self, role: str) -> str | None:
        """The column that a person named for this role."""
        name = self.given.get(role)
        if name is None:
            return None
        if name in self.table.names:
            return self.note(role, name)
        if plain(name) in self.by_plain:
            return self.note(role, self.by_plain[plain(name)])
        near = get_close_matches(name, self.table.names, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise BertsmithError(
            f"{self.table.path}: no column {name!r} for the {role}; "
            f"it has {shown(self.table.names)}{hint}"
        )

    def known(self, role: str) -> str | None:
        """The column that was said, or the first known one, or None."""
        name = self.said(role)
        if name is None:
            places = (self.by_plain.get(candidate) for candidate in NAMES[role])
            free = (place for place in places if place and place not in self.found.values())
            name = next(free, None)
        return None if name is None else self.note(role, name)

    def needed(self, role: str) -> str:
        """The column for a role, or an error that says how to name it."""
        name = self.known(role)
        if name is None:
            has = shown(self.table.names)
            what = f"its columns are {has}" if self.table.header else self._headerless()
            raise BertsmithError(
                f"{self.table.path}: no column is known to hold the {role}: {what}; "
                f"name it with --{role}-column"
            )
        return name

    def couple(self) -> tuple[str, str | None]:
        """The column of texts, and that of the second texts if there is one."""
        text, pair = self.said("text"), self.said("pair")
        if text is None:
            for first, second in COUPLES:
                here, there = self.by_plain.get(first), self.by_plain.get(second)
                taken = {here, there} & set(self.found.values())
                if here and there and not taken:
                    return self.note("text", here), self.note("pair", there)
            text = self.needed("text")
        return text, pair

    def numbered(self, *words: str) -> list[str]:
        """Columns such as ending0, ending1, ... in the order of their numbers."""
        for word in words:
            pattern = re.compile(rf"{word}_?(\d+)")
            hits = [
                (m, name) for key, name in self.by_plain.items() if (m := pattern.fullmatch(key))
            ]
            if len(hits) > 1:
                return [name for _, name in sorted(hits, key=lambda hit: int(hit[0][1]))]
        return []

    def note(self, role: str, name: str) -> str:
        """Remember what was found, for it is printed."""
        self.found[role] = name
        return name

    def _headerless(self) -> str:
        return (
            f"the first line is no header that is known, so they are 1 to {len(self.table.names)}"
        )


def without_header(table: Table) -> dict[str, str]:
    """What the columns of a file without a header are, where that can be told.

    Two columns: the one with fewer different values is the label. Four, the second 0 or 1 and
    the third empty or a linguist's mark (*, ?, #): CoLA.
    """
    values = [[row.cells[name] for row in table.rows] for name in table.names]
    kinds = [len(set(column)) for column in values]
    if len(values) == 2 and min(kinds) < max(kinds) and min(kinds) <= max(2, len(values[0]) // 2):
        text, label = (0, 1) if kinds[0] > kinds[1] else (1, 0)
        return {"text": table.names[text], "label": table.names[label]}
    marks = "".join(values[2]) if len(values) == 4 else ""
    if len(values) == 4 and set(values[1]) <= {"0", "1"} and not re.search(r"[^\W_]", marks):
        return {"text": table.names[3], "label": table.names[1]}
    return {}


def known_name(given: Mapping[str, str]) -> set[str]:
    """Every name that makes a first line a header."""
    return KNOWN | {plain(name) for name in given.values() if not name.isdigit()}


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
