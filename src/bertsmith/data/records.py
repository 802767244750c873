"""jsonl and json files, and what Python has in memory: lists of texts, tuples or dictionaries."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from bertsmith.data.streams import Stream
from bertsmith.data.tables import Row, Table, Where, names_of, portions
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.foreign import parse_json
from bertsmith.ledger import Ledger

SPLITS = {"train": "train", "val": "dev", "dev": "dev", "valid": "dev", "validation": "dev"}
SPLITS |= {"test": "test"}
NEITHER = "neither SQuAD's layout nor a list of objects"
OUTSIDE = "oos_"  # CLINC150's lists of texts outside of every class: oos_train, ...


def json_lines_tables(stream: Stream, size: int) -> Iterator[Table]:
    """The portions of a file with a JSON object on each line."""
    table = Table(stream.path, (), [])
    for rows in portions(_json_rows(table, stream.numbered()), size):
        # A key of earlier rows stays a column.
        names = tuple(dict.fromkeys((*table.names, *names_of(rows))))
        table = replace(table, names=names, rows=rows, share=stream.share)
        yield table


def _json_rows(table: Table, lines: Iterable[tuple[int, str]]) -> Iterator[Row]:
    for number, line in lines:
        if line.strip():
            where = table.where(Row(number, {}))
            value = parse_json(line, where, object, constant=lambda _: None)
            value = _from_spacy(value) or value
            if not isinstance(value, dict):
                raise BertsmithError(f"{where}: not a JSON object")
            yield Row(number, value)


def read_document(stream: Stream) -> Any:
    """A JSON document; a file with an object on each line is a `Table`."""
    text = stream.text()
    first, _, rest = text.lstrip().partition("\n")
    if first.rstrip().endswith("}") and first.startswith("{") and rest.lstrip().startswith("{"):
        table = Table(stream.path, (), [])
        rows = list(_json_rows(table, enumerate(text.split("\n"), 1)))
        return replace(table, names=names_of(rows), rows=rows)
    return parse_json(text, stream.name, object, constant=lambda _: None)


def document_table(path: Path, content: Any, ledger: Ledger, split: str | None = None) -> Table:
    """The rows of a JSON document: a list, or an object that holds one (as `data`, or by split)."""
    if isinstance(content, Table):
        return content
    if splits_of(content):
        content = _one_split(path, content, ledger, split)
    elif isinstance(content, dict):
        values = [content.get(key) for key in ("data", "annotations")]
        content = next((value for value in values if isinstance(value, list)), None)
    if not isinstance(content, list):
        raise BertsmithError(f"{path}: {NEITHER} (nor an object a line)")
    return list_table(path, enumerate(content, 1))


def splits_of(content: Any) -> dict[str, str]:
    """The lists of a document that are splits, as CLINC150 has them: our name → the key."""
    if not isinstance(content, dict) or not isinstance(content.get("train"), list):
        return {}
    return {SPLITS[key]: key for key in content if key in SPLITS and isinstance(content[key], list)}


def _one_split(path: Path, content: Any, ledger: Ledger, split: str | None) -> list[Any]:
    splits = splits_of(content)
    if split not in splits and split not in splits.values():
        what = f"no split {split!r} in it" if split else "it holds several splits"
        choose = f"choose {', '.join(splits)} with {setting_name('split')}"
        raise BertsmithError(f"{path}: {what}; {choose}")
    key = splits.get(str(split), str(split))
    outside = content.get(OUTSIDE + key)
    if not isinstance(outside, list):
        return list(content[key])
    ledger.note(f"examples of {OUTSIDE}{key}, read with {key}", len(outside))
    return [*content[key], *outside]


def list_table(path: Path, numbered: Iterable[tuple[int, Any]]) -> Table:
    """Numbered dictionaries, tuples, texts, or spaCy's (text, {"entities": ...})."""
    rows, header = [], True
    for number, item in numbered:
        if isinstance(item, str):
            cells = {"text": item}
        elif isinstance(item, Mapping):
            cells = {str(key): value for key, value in item.items()}
        elif annotated := _from_spacy(item):
            cells = annotated
        elif isinstance(item, list | tuple) and item:
            cells, header = {str(place): value for place, value in enumerate(item, 1)}, False
        else:
            where = Where(str(path), number, "row")
            raise BertsmithError(f"{where}: {NEITHER}, but {type(item).__name__}")
        rows.append(Row(number, cells))
    return Table(path, names_of(rows), rows, unit="row", header=header)


def list_tables(path: Path, items: Iterable[Any], size: int) -> Iterator[Table]:
    """A list, or anything else that can be iterated, in portions."""
    numbered, empty = enumerate(items, 1), True
    while (table := list_table(path, islice(numbered, size))).rows:
        empty = False
        yield table
    if empty:
        raise BertsmithError(f"{path}: contains no rows")


def _from_spacy(item: Any) -> dict[str, Any] | None:
    """The cells of a pair of a text and its annotations, as spaCy 2 was trained on."""
    match item:
        case [str(text), {"entities": _} as annotations]:
            return {"text": text, **annotations}
    return None
