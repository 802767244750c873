"""`read_data`: any data file → a Dataset, with its format, task and columns found out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.data.choices import read_choices
from bertsmith.data.columns import Finder, known_name, plain, without_header
from bertsmith.data.conll import looks_like_conll, read_conll, read_conllu
from bertsmith.data.dataset import Dataset, known_task
from bertsmith.data.delimited import read_delimited
from bertsmith.data.documents import read_json, read_json_lines, read_parquet, table_of
from bertsmith.data.examples import Tagged
from bertsmith.data.files import read_text, suffix_of
from bertsmith.data.guess import guess_task, has
from bertsmith.data.rows import Table
from bertsmith.data.schemes import convert, detect
from bertsmith.data.squad import is_squad, read_questions, read_squad
from bertsmith.data.texts import (
    read_labelled,
    read_multilabelled,
    read_related,
    read_scored,
    read_tagged,
)
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger

CONLL = (".conll", ".conll03", ".iob", ".iob2", ".bio", ".ner", ".pos", ".tags")
FORMATS = "csv, tsv, jsonl, json, parquet, conll, conllu or txt (and .gz or .xz of each)"


def read_data(
    path: str | Path,
    task: str | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    label_names: Sequence[str] | None = None,
    skip_ragged: bool = False,
) -> Dataset[Any]:
    """Read a file of examples.

    The task is guessed where none is given; `columns` says which column is what (`text`, `pair`,
    `label`, `score`, `tokens`, `tags`, `question`, `passage`, `answers`, ...) where the names in
    the file are not known ones; `label_names` are the names of labels that are numbers from 0.
    """
    path, ledger = Path(path), Ledger()
    given = {role: name for role, name in (columns or {}).items() if name}
    if task is not None:
        known_task(task)
    if path.is_dir():
        raise BertsmithError(f"{path} is a folder; give a file")
    ending = suffix_of(path)
    if ending == ".txt":
        grouped = task == "tagging" or looks_like_conll(read_text(path))
        ending = ".conll" if grouped else ".tsv"
    if ending == ".conllu":
        return _tagging(path, task, ledger, *read_conllu(path, ledger, given.get("tags")))
    if ending in CONLL:
        found = read_conll(path, ledger, given.get("tokens"), given.get("tags"))
        return _tagging(path, task, ledger, *found)
    if ending == ".json":
        content = read_json(path)
        if is_squad(content):
            _only("answering", task, path, "SQuAD's layout")
            examples = _some(path, read_squad(path, content, ledger))
            why = "" if task else "it is in SQuAD's layout"
            layout = {"question": "question", "passage": "context", "answers": "answers"}
            return Dataset(path, "answering", examples, layout, why, ledger=ledger)
        table = table_of(path, content)
    else:
        table = _table(path, ending, given, ledger, skip_ragged)
    return _rows(table, task, given, label_names, ledger)


def _table(path: Path, ending: str, given: Mapping[str, str], ledger: Ledger, skip: bool) -> Table:
    """The rows of a file, by its ending."""
    if ending in (".csv", ".tsv", ".tab"):
        names = known_name(given)
        tabs = ending != ".csv"
        return read_delimited(path, lambda n: plain(n) in names, ledger, tabs=tabs, skip=skip)
    if ending in (".jsonl", ".ndjson"):
        return read_json_lines(path)
    if ending in (".parquet", ".pq"):
        return read_parquet(path)
    raise unknown_kind(path)


def unknown_kind(path: Path) -> BertsmithError:
    """What to say of a file by whose name nobody can tell what is in it."""
    if not path.exists():
        return BertsmithError(f"{path}: there is no such file or folder")
    return BertsmithError(f"{path}: what kind of file is this? Known: {FORMATS}")


def _rows(
    table: Table,
    task: str | None,
    given: Mapping[str, str],
    label_names: Sequence[str] | None,
    ledger: Ledger,
) -> Dataset[Any]:
    """The examples of a table."""
    if not table.rows:
        raise BertsmithError(f"{table.path}: there are no rows in it")
    if not table.header:
        given = {**without_header(table), **given}
    why = ""
    if task is None:
        task, why = guess_task(table, given)
    finder = Finder(table, given)
    examples: list[Any]
    match task:
        case "tagging":
            tagged = read_tagged(table, finder, ledger, label_names)
            return _tagging(table.path, task, ledger, tagged, finder.found, why)
        case "classification":
            examples = list(read_labelled(table, finder, ledger, label_names))
        case "multilabel":
            examples = list(read_multilabelled(table, finder, label_names))
        case "answering":
            examples = list(read_questions(table, finder, ledger))
        case "choice":
            examples = list(read_choices(table, finder))
        case "similarity" if has(finder, "positive") or not has(finder, "score"):
            examples = list(read_related(table, finder))
        case _:
            examples = list(read_scored(table, finder))
    return Dataset(table.path, task, _some(table.path, examples), finder.found, why, ledger=ledger)


def _tagging(
    path: Path,
    task: str | None,
    ledger: Ledger,
    examples: list[Tagged],
    columns: dict[str, str],
    why: str | None = None,
) -> Dataset[Any]:
    """Tagged sentences with their scheme; IOB1, which no one can learn well, becomes BIO."""
    _only("tagging", task, path, "words with tags")
    _some(path, examples)
    scheme = detect(example.tags for example in examples if example.tags is not None)
    if scheme == "iob1":
        ledger.note("sentences converted from IOB1 to BIO", len(examples))
        examples = [_converted(example) for example in examples]
        scheme = "bio"
    if why is None:
        why = "" if task else "it has a word and a tag on each line"
    return Dataset(path, "tagging", examples, columns, why, scheme, ledger)


def _converted(example: Tagged) -> Tagged:
    if example.tags is None:
        return example
    tags = tuple(convert(example.tags, "bio"))
    text, words, offsets = example.text, example.words, example.offsets
    return Tagged(text, words, offsets, tags, example.where, example.lines)


def _only(task: str, asked: str | None, path: Path, layout: str) -> None:
    if asked not in (None, task):
        raise BertsmithError(f"{path} holds {layout}, which is for {task}, not for {asked}")


def _some(path: Path, examples: list[Any]) -> list[Any]:
    if not examples:
        raise BertsmithError(f"{path}: there are no examples in it")
    return examples
