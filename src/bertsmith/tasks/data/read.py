"""`read_data`: any data file → a Dataset, with its format, task and columns found out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.tasks.data.choices import has_choices, read_choices
from bertsmith.tasks.data.columns import Finder, is_list, known_name, plain, without_header
from bertsmith.tasks.data.conll import looks_like_conll, read_conll, read_conllu
from bertsmith.tasks.data.dataset import Dataset, known_task
from bertsmith.tasks.data.examples import Tagged
from bertsmith.tasks.data.files import read_text, suffix_of
from bertsmith.tasks.data.rows import (
    Table,
    read_delimited,
    read_json,
    read_json_lines,
    read_parquet,
    sample,
    table_of,
)
from bertsmith.tasks.data.schemes import convert, detect
from bertsmith.tasks.data.squad import is_squad, read_questions, read_squad
from bertsmith.tasks.data.texts import (
    read_labelled,
    read_multilabelled,
    read_related,
    read_scored,
    read_tagged,
)

CONLL = (".conll", ".conll03", ".iob", ".iob2", ".bio", ".ner", ".pos", ".tags")
FORMATS = "csv, tsv, jsonl, json, parquet, conll, conllu or txt (and .gz or .xz of each)"
SPLITS = {
    "train": ("train", "training", "train_rebuilt"),
    "dev": ("dev", "valid", "validation", "val", "dev_matched", "development"),
    "test": ("test", "testing", "test_matched"),
}


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
        ending = ".conll" if looks_like_conll(read_text(path)) else ".tsv"
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


def find_splits(folder: str | Path) -> dict[str, Path]:
    """The files of a folder that are called train, dev (or valid, ...) and test."""
    folder = Path(folder)
    found: dict[str, Path] = {}
    for split, names in SPLITS.items():
        files = {re.split(r"\.", path.name)[0].lower(): path for path in sorted(folder.iterdir())}
        # Of a rebuilt split and the one that it repairs, the rebuilt one is meant.
        hits = [files[name] for name in names if name in files]
        ends = [path for stem, path in files.items() if re.search(rf"[-_]{split}$", stem)]
        if hits or len(ends) == 1:
            found[split] = (hits or ends)[-1 if split == "train" else 0]
    if "train" not in found:
        raise BertsmithError(f"{folder}: no file in it is called train; give a file")
    return found


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
    raise BertsmithError(f"{path}: what kind of file is this? Known: {FORMATS}")


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
    scheme = None
    examples: list[Any]
    if task == "classification":
        examples = list(read_labelled(table, finder, ledger, label_names))
    elif task == "multilabel":
        examples = list(read_multilabelled(table, finder, label_names))
    elif task == "regression":
        examples = list(read_scored(table, finder))
    elif task == "answering":
        examples = list(read_questions(table, finder, ledger))
    elif task == "choice":
        examples = list(read_choices(table, finder))
    elif task == "tagging":
        tagged = read_tagged(table, finder, ledger, label_names)
        return _tagging(table.path, task, ledger, tagged, finder.found, why)
    else:
        scored = _has(finder, "score") and not _has(finder, "positive")
        examples = list(read_scored(table, finder) if scored else read_related(table, finder))
    _some(table.path, examples)
    return Dataset(table.path, task, examples, finder.found, why, scheme, ledger)


def guess_task(table: Table, given: Mapping[str, str]) -> tuple[str, str]:
    """The task that columns are made for, and why; raises where they say nothing."""
    finder = Finder(table, given)
    said = set(given)
    if said & {"tokens", "tags"} or (_lists(finder, "tokens") and _has(finder, "tags")):
        return "tagging", "it has words and tags"
    if said & {"prompt", "options"} or has_choices(finder):
        return "choice", "it has choices"
    passage = any(name in finder.by_plain for name in ("context", "passage", "paragraph"))
    answered = said & {"question", "passage", "answers"} or "human_ans_spans" in finder.by_plain
    if answered or (passage and "question" in finder.by_plain):
        return "answering", "it has questions and passages"
    if said & {"anchor", "positive"} or {"anchor", "positive"} <= set(finder.by_plain):
        return "similarity", "it has texts that belong together"
    if "score" in said:
        return "regression", "a column of scores was named"
    text, pair = Finder(table, given).couple()
    what = "texts" if pair is None else "pairs of texts"
    labels = Finder(table, given)
    labels.note("text", text)
    column = labels.known("label")
    if column is None or (pair and labels.by_plain.get("score") and "label" not in said):
        if "score" in finder.by_plain:
            return "regression", f"it has {what} and scores"
        return "classification", f"it has {what}, and no labels"
    if is_list(table, column):
        return "multilabel", f"it has {what} and lists of labels"
    values = sample(table, column)
    if values and all(_fraction(value) is not None for value in values):
        if any(_fraction(value) for value in values):
            return "regression", f"it has {what}, and {column!r} holds fractions"
    return "classification", f"it has {what} and labels"


def _has(finder: Finder, role: str) -> bool:
    return Finder(finder.table, finder.given).known(role) is not None


def _lists(finder: Finder, role: str) -> bool:
    name = Finder(finder.table, finder.given).known(role)
    return name is not None and is_list(finder.table, name)


def _fraction(value: Any) -> float | None:
    """What a number has behind its point; None where it is no number."""
    try:
        return float(value) % 1
    except (TypeError, ValueError):
        return None


def _tagging(
    path: Path,
    task: str | None,
    ledger: Ledger,
    examples: list[Tagged],
    columns: dict[str, str],
    why: str = "it has a word and a tag on each line",
) -> Dataset[Any]:
    """Tagged sentences with their scheme; IOB1, which no one can learn well, becomes BIO."""
    _only("tagging", task, path, "words with tags")
    _some(path, examples)
    scheme = detect(example.tags for example in examples if example.tags is not None)
    if scheme == "iob1":
        ledger.note("sentences converted from IOB1 to BIO", len(examples))
        examples = [_converted(example) for example in examples]
        scheme = "bio"
    return Dataset(path, "tagging", examples, columns, "" if task else why, scheme, ledger)


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
