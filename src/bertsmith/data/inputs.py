"""Files to predict on: examples without gold, some thousand at a time, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from bertsmith.data import Labelled, Question, Tagged, Where
from bertsmith.data.choices import read_choices
from bertsmith.data.columns import Finder, known_name, plain, without_header
from bertsmith.data.conll import (
    conll_sentences,
    conllu_column,
    conllu_sentences,
    looks_like_conll,
    tagged,
)
from bertsmith.data.delimited import open_delimited
from bertsmith.data.documents import (
    json_rows,
    names_of,
    open_parquet,
    read_json,
    table_of,
)
from bertsmith.data.examples import joined
from bertsmith.data.files import Stream, suffix_of
from bertsmith.data.read import CONLL, unknown_kind
from bertsmith.data.rows import Row, Table, list_cell, text_cell
from bertsmith.data.squad import is_squad, passage_cell, read_squad
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger

SIZE = 2048  # examples that are read, predicted and written at once
TEXTS = ("classification", "multilabel", "regression", "tagging", "similarity")  # a text each

Columns = Mapping[str, str]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Stretch:
    """Some examples of a file, and how much of it has been read with them, from 0 to 1."""

    examples: list[Any]
    share: float
    columns: Columns = field(default_factory=dict)  # role → the column it was found in


def read_inputs(
    path: str | Path,
    task: str,
    columns: Columns | None = None,
    size: int = SIZE,
    ledger: Ledger | None = None,
) -> Iterator[Stretch]:
    """Read a file for a model of a task, stretch by stretch, whatever its labels say.

    A .txt file is a text a line; of tagging, words too. A .json document is read whole, since
    only its end tells what it is.
    """
    path, given = Path(path), {role: name for role, name in (columns or {}).items() if name}
    if path.is_dir():
        raise BertsmithError(f"{path} is a folder; give a file")
    ending = suffix_of(path)
    if ending == ".txt":
        words = task == "tagging" and looks_like_conll(Stream(path).head())
        ending = ".conll" if words else ".txt" if task in TEXTS else ".tsv"
    found = False
    for stretch in _stretches(path, ending, task, given, size, ledger or Ledger()):
        found = found or bool(stretch.examples)
        yield stretch
    if not found:
        raise BertsmithError(f"{path}: there are no examples in it")


def _stretches(
    path: Path, ending: str, task: str, given: Columns, size: int, ledger: Ledger
) -> Iterator[Stretch]:
    if ending == ".txt":
        stream = Stream(path)
        for lines in portions(stream.numbered(), size):
            texts = [Labelled(text, None, None, Where(str(path), n)) for n, text in lines]
            yield Stretch(list(texts), stream.share)
    elif ending == ".conllu" or ending in CONLL:
        if task != "tagging":
            raise BertsmithError(f"{path} holds words with tags; the model is for {task}")
        yield from _sentences(path, ending, given, size, ledger)
    elif ending == ".json":
        yield from _document(path, task, given, size, ledger)
    else:
        given = dict(given)
        for table, share in _tables(path, ending, given, size):
            finder = Finder(table, given)
            yield Stretch(_examples(table, finder, task, ledger), share, finder.found)
            # What the first rows show holds for all.
            given.update((role, name) for role, name in finder.found.items() if name in table.names)


def _sentences(
    path: Path, ending: str, given: Columns, size: int, ledger: Ledger
) -> Iterator[Stretch]:
    """Sentences of words, a word a line."""
    stream = Stream(path)
    if ending == ".conllu":
        column = conllu_column(path, given.get("tags"))
        for group in portions(conllu_sentences(path, stream.numbered(), column, ledger), size):
            yield Stretch(group, stream.share)
        return
    for lines in portions(conll_sentences(path, stream.numbered(), ledger), size):
        examples, _ = tagged(path, lines, ledger, given.get("tokens"), given.get("tags"))
        yield Stretch(list(examples), stream.share)


def _document(
    path: Path, task: str, given: Columns, size: int, ledger: Ledger
) -> Iterator[Stretch]:
    """A JSON document: SQuAD's, or rows."""
    content = read_json(path)
    if is_squad(content):
        if task != "answering":
            raise BertsmithError(f"{path} is in SQuAD's layout; the model is for {task}")
        examples: list[Any] = list(read_squad(path, content, ledger))
    else:
        table = table_of(path, content)
        examples = _examples(table, Finder(table, given), task, ledger)
    for start in range(0, len(examples), size):
        share = min(1.0, (start + size) / len(examples))
        yield Stretch(examples[start : start + size], share)


def _tables(
    path: Path, ending: str, given: dict[str, str], size: int
) -> Iterator[tuple[Table, float]]:
    """The rows of a file, so many at a time, with how much of it has been read.

    What columns without names are is added to `given`.
    """
    stream = Stream(path)
    if ending in (".csv", ".tsv", ".tab"):
        head, names = stream.head(), known_name(given)

        def opened(lines: Iterable[str]) -> tuple[Table, Iterator[Row]]:
            known, tabs = (lambda name: plain(name) in names), ending != ".csv"
            return open_delimited(path, head, lines, known, Ledger(), tabs=tabs)

        table, rows = opened(stream)
        if not table.header:
            first = replace(table, rows=list(opened(StringIO(head))[1]))
            given.update({**without_header(first), **given})
        for some in portions(rows, size):
            yield replace(table, rows=some), stream.share
    elif ending in (".jsonl", ".ndjson"):
        table = Table(path, (), [])
        for some in portions(json_rows(path, stream.numbered()), size):
            # A key that was there once is a column, also where these rows lack it.
            seen = tuple(dict.fromkeys((*table.names, *names_of(some))))
            table = replace(table, names=seen, rows=some)
            yield table, stream.share
    elif ending in (".parquet", ".pq"):
        table, total, batches = open_parquet(path, size)
        for some in batches:
            yield replace(table, rows=some), some[-1].number / max(1, total) if some else 1.0
    else:
        raise unknown_kind(path)


def _examples(table: Table, finder: Finder, task: str, ledger: Ledger) -> list[Any]:
    """What a model of a task reads of a table's rows."""
    if task == "choice":
        return [replace(example, label=None) for example in read_choices(table, finder)]
    if task == "answering":
        return _questions(table, finder, ledger)
    if task == "similarity" and {"anchor", "positive"} <= {*finder.given, *finder.by_plain}:
        text, pair = finder.needed("anchor"), finder.needed("positive")
        return _each(table, lambda row, where: _texts(row, where, text, pair))
    if task == "tagging" and "text" not in finder.given and finder.known("tokens"):
        return _each(table, lambda row, where: _words(row, where, finder.found["tokens"]))
    first, second = finder.couple()
    if task == "tagging":
        second = None
    return _each(table, lambda row, where: _texts(row, where, first, second))


def _questions(table: Table, finder: Finder, ledger: Ledger) -> list[Any]:
    question, passage = finder.needed("question"), finder.needed("passage")
    name = finder.known("id")

    def ask(row: Row, where: Where) -> Question:
        asked = text_cell(row.cells.get(question), where, question)
        known = row.cells.get(name) if name else None
        read = passage_cell(row, where, passage, ledger)
        return Question(str(row.number if known is None else known), asked, read, None, "", where)

    return _each(table, ask)


def _each(table: Table, make: Callable[[Row, Where], Any]) -> list[Any]:
    return [make(row, table.where(row)) for row in table.rows]


def _texts(row: Row, where: Where, text: str, pair: str | None) -> Labelled:
    """One text, or two."""
    second = None if pair is None else text_cell(row.cells.get(pair), where, pair)
    return Labelled(text_cell(row.cells.get(text), where, text), second, None, where)


def _words(row: Row, where: Where, column: str) -> Tagged:
    cells = list_cell(row.cells.get(column), where, column)
    words = tuple(text_cell(word, where, column) for word in cells)
    text, offsets = joined(words)
    return Tagged(text, words, offsets, None, where)


def portions(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """So many of something at a time."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
