"""Files of labels that people make, one line an event: which label each row has in the end."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from bertsmith.data.tables import Row, Table, Where, names_of
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger

PLAN = "labelling"  # the only entry of a line that says what is labelled: the first one is such
EVENTS = ("label", "skip", "undo", "guidelines")
# The entries of a line that are neither texts nor labels.
ABOUT = {"event", "event_id", "row_id", "annotator", "at", "split", "final", "suggested"}
ABOUT |= {"confidence", "guidelines"}
PARTS = ("train", "test")  # of a file of labels


@dataclass
class Annotations:
    """The events of a file, line by line; each person's last answer for a row counts."""

    plan: dict[str, Any] = field(default_factory=dict)  # the task, labels, columns of labels, ...
    answers: dict[str, dict[str, Row]] = field(default_factory=dict)  # row → person → answer
    decisions: dict[str, Row] = field(default_factory=dict)  # labels that settle disagreements
    ids: dict[str, Row] = field(default_factory=dict)  # all events
    guidelines: str = ""

    def add(self, row: Row, where: object) -> None:
        """Take the event of a line."""
        event = row.cells
        if PLAN in event:
            self.plan |= event[PLAN] if isinstance(event[PLAN], dict) else {}
            return
        kind, name, by = (event.get(key) for key in ("event", "row_id", "annotator"))
        if kind not in EVENTS or not isinstance(by, str) or not isinstance(name, str | None):
            raise BertsmithError(f"{where}: not an event of a file of labels")
        self.ids[str(event.get("event_id"))] = row
        if kind == "guidelines":
            self.guidelines = str(event.get("guidelines", ""))
        elif kind == "undo":
            self.answers.get(str(name), {}).pop(by, None)
        elif event.get("final"):
            self.decisions[str(name)] = row
        else:
            self.answers.setdefault(str(name), {})[by] = row

    def label(self, row: Row) -> dict[str, Any]:
        """The cells of an event that are its label."""
        return {name: row.cells.get(name) for name in self.plan.get("columns", ("label",))}

    def _key(self, row: Row) -> str:
        return json.dumps(self.label(row), sort_keys=True)

    def labels_of(self, name: str) -> dict[str, Row]:
        """The labels of a row by the person who gave them; skipped ones are none."""
        answers = self.answers.get(name, {})
        return {by: row for by, row in answers.items() if row.cells["event"] == "label"}

    def disagreed(self, name: str) -> bool:
        """Do people label a row differently?"""
        return len(set(map(self._key, self.labels_of(name).values()))) > 1

    def settled(self, name: str) -> Row | None:
        """The label of a row: a decision, or what most people say; None where there is none."""
        if name in self.decisions:
            return self.decisions[name]
        rows = list(self.labels_of(name).values())
        counts = Counter(map(self._key, rows)).most_common(2)
        if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]):
            return None
        return next(row for row in rows if self._key(row) == counts[0][0])

    def rows(self) -> Iterator[tuple[str, Row | None]]:
        """Every row that anybody has seen, with its label."""
        for name in {**self.answers, **self.decisions}:
            yield name, self.settled(name)


def read_events(rows: Iterable[Row], file: str) -> Annotations:
    """The annotations of all lines."""
    annotations = Annotations()
    for row in rows:
        annotations.add(row, Where(file, row.number))
    return annotations


def label_table(tables: Iterable[Table], split: str | None, ledger: Ledger) -> Iterator[Table]:
    """Tables as they are; of a file of labels, one with a row for each text that has a label.

    It holds the part that is for training, or the one that is held out (`split` "test").
    """
    tables = iter(tables)
    first = next(tables, None)
    if first is None or not first.rows or PLAN not in first.rows[0].cells:
        yield from chain([first] if first else [], tables)
        return
    lines = (row for table in (first, *tables) for row in table.rows)
    annotations = read_events(lines, str(first.path))
    labelled: list[Row] = []
    held_out = 0
    for name, row in annotations.rows():
        if row is None:
            if annotations.disagreed(name):
                ledger.note("texts on which people disagree, left out")
            elif annotations.answers.get(name):  # else the only answer was taken back
                ledger.note("skipped texts")
        elif row.cells.get("split", "train") != (split or "train"):
            held_out += 1
        else:
            cells = {key: value for key, value in row.cells.items() if key not in ABOUT}
            labelled.append(Row(row.number, cells))
    if split is None:
        ledger.note("texts held out for evaluation, not read (they are the split test)", held_out)
    task = annotations.plan.get("task", "")
    yield replace(first, names=names_of(labelled), rows=labelled, share=1.0, task=task)


def parts_of(tables: Iterable[Table]) -> tuple[str, ...]:
    """The parts in which a file of labels has some; () for any other file."""
    rows = (row for table in tables for row in table.rows)
    first = next(rows, None)
    if first is None or PLAN not in first.cells:
        return ()
    labels = [row for _, row in read_events(chain([first], rows), "").rows()]
    splits = {row.cells.get("split", "train") for row in labels if row is not None}
    return tuple(name for name in PARTS if name in splits)
