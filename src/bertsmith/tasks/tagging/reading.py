"""Rows of words with tags, and of texts with annotated spans."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from bertsmith.data.columns import Finder, is_list
from bertsmith.data.tables import Row, Table, Where, is_absent, list_cell, sample, text_cell
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.numbers import counted
from bertsmith.tasks.cells import TEXT, TextReading, class_names, label_cell
from bertsmith.tasks.labelling import MarkSpans
from bertsmith.tasks.reading import Rows, TaskGuess
from bertsmith.tasks.tagging.conll import Conll, ConllU
from bertsmith.tasks.tagging.examples import (
    SPAN_FORMATS,
    Annotated,
    Tagged,
    joined,
    predicted_spans,
    read_spans,
)

WORDLESS = "sentences without words, left out"
BROKEN = 0.01  # the share of entities with a wrong tag before training suffers


class TaggingReading(TextReading):
    """A tag for every word."""

    name, order, about = "tagging", 40, "a tag for every word"
    roles: ClassVar = {
        "text": TEXT,
        "tokens": ("tokens", "words", "token", "word", "form", "sentence"),
        "tags": (
            *("ner_tags", "tags", "ner", "labels", "label", "pos_tags", "upos", "pos", "xpos"),
            *("chunk_tags", "tag", "bio_tags"),
        ),
        "spans": ("spans", "entities", "ents", "label", "labels"),
    }
    layouts, pairs = (ConllU(), Conll()), False
    labelling = MarkSpans()
    records: ClassVar = {kind: partial(predicted_spans, kind) for kind in SPAN_FORMATS}

    def suits(self, finder: Finder) -> TaskGuess | None:
        if spans_column(finder):
            return TaskGuess(1.0, "it has texts with spans")
        if not finder.given.keys() & {"tokens", "tags"}:
            tokens = finder.peek("tokens")
            listed = tokens is not None and is_list(finder.table, tokens)
            if not listed or finder.peek("tags") is None:
                return None
        return TaskGuess(0.95, "it has words and tags")

    def examples(self, rows: Rows) -> list[Any]:
        if column := spans_column(rows.finder):
            rows.scheme = "bio"
            return _annotated(rows, column)
        return _spelled(rows, _tagged(rows))

    def laid_out(self, rows: Rows) -> list[Any]:
        examples = super().laid_out(rows)
        treebank = rows.table.layout == ConllU.name
        if treebank and all(tag == "_" for one in examples for tag in one.tags):
            raise BertsmithError(
                f"{rows.table.path}: its column {rows.table.columns['tags']} is empty; choose "
                f"another with {setting_name('columns', {'tags': 'NAME'}, '--column tags=NAME')}"
            )
        return _spelled(rows, examples)

    def inputs(self, rows: Rows) -> list[Any | None]:
        """The words of each row where it has some, or its text."""
        finder = rows.finder
        # Spans are places in the text, so that it is read as it is.
        words = "text" not in finder.given and not spans_column(finder)
        if words and (column := _words_column(finder)):
            return [_words(row, where, column) for row, where in rows]
        return super().inputs(rows)

    def lint(self, splits: Mapping[str, Any]) -> Iterator[Any]:
        from bertsmith.metrics.schemes import chunks, faults, split
        from bertsmith.tasks.check.findings import Finding, finding

        labels = splits["train"].labels
        if labels and all(label.isdecimal() for label in labels):
            what = "train: tags are numbers, so entities cannot be scored"
            advice = "give their names (label names O,B-PER,...)"
            yield Finding("warning", "numbered-tags", what, len(labels), (), advice)
        # A split without entities has no scheme of its own.
        marks = [{split(label)[0] for label in one.labels} for one in splits.values()]
        schemes = {name: one.scheme for name, one in splits.items() if one.labels}
        if len(set(schemes.values())) > 1 and not any(one <= {"O"} for one in marks):
            spoken = ", ".join(f"{name} is {scheme or 'plain'}" for name, scheme in schemes.items())
            what = f"splits use different tagging schemes: {spoken}"
            yield Finding("error", "schemes", what, len(schemes), (), "convert one of them")
        for name, dataset in splits.items():
            tagged = [one for one in dataset.examples if isinstance(one, Tagged) and one.tags]
            if dataset.scheme is None:
                continue
            entities = sum(len(chunks(one.tags or ())) for one in tagged)
            scheme = dataset.scheme
            pairs = ((one, fault) for one in tagged for fault in faults(one.tags or (), scheme))
            broken = [(one.at(word), reason) for one, (word, reason) in pairs]
            severity = "error" if len(broken) > BROKEN * entities else "warning"
            first = broken[0][1] if broken else ""
            what = f"tags that violate {dataset.scheme.upper()} (first: {first})"
            advice = "they are scored as by conlleval; correct them"
            yield from finding(severity, "broken-tags", name, what, [p for p, _ in broken], advice)


def _spelled(rows: Rows, examples: list[Tagged]) -> list[Tagged]:
    """Tagged sentences, whose scheme is noted; IOB1, which is hard to learn, becomes BIO."""
    from bertsmith.metrics.schemes import convert, detect  # its room imports NumPy

    rows.scheme = detect(example.tags for example in examples if example.tags is not None)
    if rows.scheme != "iob1":
        return examples
    rows.scheme = "bio"
    rows.ledger.note("sentences converted from IOB1 to BIO", len(examples))
    tagged = ((one, one.tags and tuple(convert(one.tags, "bio"))) for one in examples)
    return [replace(example, tags=tags) for example, tags in tagged]


def _tagged(rows: Rows) -> list[Tagged]:
    words, tags = rows.finder.needed("tokens"), rows.finder.known("tags")
    classes = class_names(rows, tags)
    examples = []
    for row, where in rows:
        if (example := _words(row, where, words)) is None:
            absent = is_absent(row.cells.get(words))
            rows.ledger.note(TaggingReading.textless if absent else WORDLESS)
            continue
        if tags is not None and not is_absent(row.cells.get(tags)):
            cells, count = list_cell(row.cells[tags], where, tags), len(example.words)
            if len(cells) != count:
                raise BertsmithError(
                    f"{where}: {counted(count, 'word')} in {words!r}, "
                    f"{counted(len(cells), 'tag')} in {tags!r}"
                )
            names = [label_cell(tag, where, tags, classes) for tag in cells]
            if None in names:
                number = names.index(None) + 1
                raise BertsmithError(f"{where}: word {number} has no tag in {tags!r}")
            example = replace(example, tags=tuple(map(str, names)))
        examples.append(example)
    return examples


def _words_column(finder: Finder) -> str | None:
    """A column of lists of words, or of words between spaces where there is no column of texts."""
    text, column = finder.peek("text"), finder.peek("tokens")
    values = sample(finder.table, column, 20) if column else []
    lists = any(isinstance(value, list | tuple) for value in values)
    return finder.needed("tokens") if column and (text in (None, column) or lists) else None


def _words(row: Row, where: Where, column: str) -> Tagged | None:
    """The words of a row, if it has some; Prodigy's tokens are objects with a text."""
    if is_absent(row.cells.get(column)):
        return None
    cells = list_cell(row.cells[column], where, column)
    spelled = (one.get("text") if isinstance(one, dict) else one for one in cells)
    words = tuple(text_cell(word, where, column) for word in spelled)
    text, offsets = joined(words)
    return Tagged(text, words, offsets, None, where) if words else None


def _annotated(rows: Rows, column: str) -> list[Annotated]:
    rows.finder.note("spans", column)
    text = rows.finder.needed("text")
    examples = []
    for row, where in rows:
        if is_absent(row.cells.get(text)):
            rows.ledger.note(TaggingReading.textless)
            continue
        content = text_cell(row.cells[text], where, text)
        if not content.strip():
            rows.ledger.note(WORDLESS)
            continue
        spans = read_spans(content, row.cells.get(column), where, column, rows.ledger)
        examples.append(Annotated(content, spans, where))
    return examples


def spans_column(finder: Finder) -> str | None:
    """The column of annotated spans of texts, as spaCy, Prodigy and doccano write them."""
    fresh = finder.fresh()
    if named := fresh.named("spans"):
        return named
    if finder.peek("text") is None or finder.given.keys() & {"label", "tokens", "tags"}:
        return None
    return next((one for one in fresh.candidates("spans") if _holds_spans(finder.table, one)), None)


def _holds_spans(table: Table, name: str) -> bool:
    values = [value for value in sample(table, name, 200) if value]
    lists = all(isinstance(value, list) for value in values)
    return bool(values) and lists and all(_is_span(one) for value in values for one in value[:20])


def _is_span(value: Any) -> bool:
    if isinstance(value, dict):
        return bool({"start", "start_offset"} & set(value)) and "label" in value
    return isinstance(value, list | tuple) and len(value) == 3 and isinstance(value[2], str)


READING = TaggingReading()
