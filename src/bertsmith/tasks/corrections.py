"""Decisions about labels that may be wrong: a jsonl file, applied before training.

A line is {"file", "number", "sum", "label", "decision", "to"}: `decision` is "keep", "leave out" or
"relabel", and `to` the new label. `sum` is a hash of the texts and the label, so that a decision
is never applied to another row.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.foreign import parse_table
from bertsmith.ledger import Ledger
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.reading import TaskExample

DECISIONS = ("keep", "leave out", "relabel")


def sum_of(example: TaskExample) -> str:
    """A hash of the texts and the label of an example."""
    content = repr((example.texts, _label(example))).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()[:16]


def _label(example: TaskExample) -> Any:
    """The label of an example as JSON can have it; labels without an order are sorted."""
    return sorted(example.gold) if isinstance(example.gold, frozenset) else example.gold


def decision(example: TaskExample, chosen: str) -> dict[str, Any]:
    """A decision about an example, as a line of the file."""
    return {
        "file": Path(example.where.file).name,
        "number": example.where.number,
        "sum": sum_of(example),
        "label": _label(example),
        "decision": chosen,
    }


def read_decisions(path: str | Path) -> list[dict[str, Any]]:
    """The decisions of a file; a line that is none is an error."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise BertsmithError(f"{path}: cannot be read ({error.strerror})") from None
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = parse_table(line) or {}
        known = isinstance(row.get("sum"), str) and row.get("decision") in DECISIONS
        if not known or (row["decision"] == "relabel" and "to" not in row):
            raise BertsmithError(f"{path}, line {number}: not a decision of `bertsmith check`")
        rows.append(row)
    return rows


def corrected(dataset: Dataset[Any], decisions: str | Path | Sequence[Any]) -> Dataset[Any]:
    """A data set to which decisions (a file, or its rows) are applied; the last of a row counts."""
    is_file = isinstance(decisions, str | Path)
    rows: Sequence[Any] = read_decisions(decisions) if is_file else decisions  # type: ignore
    chosen = {(row["sum"], row["number"]): row for row in rows}
    ledger = Ledger()
    ledger.counts.update(dataset.ledger.counts)
    examples, used = [], 0
    for example in dataset.examples:
        row = chosen.get((sum_of(example), example.where.number))
        used += row is not None
        if row is None or row["decision"] == "keep":
            examples.append(example)
        elif row["decision"] == "leave out":
            ledger.note("rows with a label that is probably wrong, left out")
        else:
            examples.append(_relabelled(dataset, example, row["to"]))
            ledger.note("rows with a corrected label")
    ledger.note("corrections of rows that are not in the file", len(chosen) - used)
    if chosen and not used:
        raise BertsmithError(f"{dataset.path}: no row is one that the corrections are about")
    return replace(dataset, examples=examples, ledger=ledger)


def _relabelled(dataset: Dataset[Any], example: Any, label: Any) -> Any:
    from bertsmith.tasks.registry import task_named  # tasks import PyTorch; reading data does not
    from bertsmith.tasks.task import Prediction

    def hashable(value: Any) -> Any:
        return tuple(map(hashable, value)) if isinstance(value, list) else value

    if isinstance(label, str) != isinstance(example.gold, str):
        raise BertsmithError(f"{example.where}: {label!r:.60} is no label of {dataset.task}")
    return task_named(dataset.task).with_prediction(example, Prediction(hashable(label), 1.0))
