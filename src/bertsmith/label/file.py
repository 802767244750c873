"""The file of labels while people label: events are on the disk before they count; agreement."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from threading import RLock
from typing import Any

from bertsmith.data.annotations import PLAN, Annotations, read_events
from bertsmith.data.records import json_lines_tables
from bertsmith.data.streams import Stream
from bertsmith.data.tables import PORTION, Row, Where
from bertsmith.errors import BertsmithError
from bertsmith.files import locked_file, writing
from bertsmith.foreign import parse_json, parse_table
from bertsmith.metrics.agreement import cohen_kappa, krippendorff_alpha
from bertsmith.store import append_line
from bertsmith.tasks.reading import reading_named


class LabelFile:
    """Events of people, appended one a line; all of them are also held in memory."""

    def __init__(self, path: str | Path, plan: Mapping[str, Any]) -> None:
        self.path, self.lock, self.lines = Path(path), RLock(), 0
        self.annotations = Annotations()
        if self.path.suffix != ".jsonl":  # other verbs would read it as another format
            raise BertsmithError(f"{path}: the name of a file of labels must end with .jsonl")
        if self.path.is_file():
            self._read()
        stored = self.annotations.plan
        for name in ("task", "columns"):
            if stored and stored.get(name) != json.loads(json.dumps(plan[name])):
                raise BertsmithError(
                    f"{path} holds labels of {stored.get('task', 'something else')}, not of "
                    f"{plan['task']}: choose another file"
                )
        labels = list(dict.fromkeys([*stored.get("labels", ()), *plan["labels"]]))
        self.plan = json.loads(json.dumps({**plan, "labels": labels}))

    def begin(self) -> None:
        """Write the plan, where it is new: one that was refused before leaves no trace."""
        if self.annotations.plan != self.plan:
            self._append({PLAN: self.plan})

    def _read(self) -> None:
        content = self.path.read_bytes()
        if content and not _is_ours(content):
            raise BertsmithError(f"{self.path} is not a file of labels: choose another")
        end = content.rfind(b"\n") + 1
        if end < len(content):  # a line whose end a power cut took: it was never confirmed
            with writing(self.path):
                os.truncate(self.path, end)
        for number, line in enumerate(content[:end].splitlines(), 1):
            where = Where(str(self.path), number)
            event = parse_json(line, where, object) if line.strip() else None
            if isinstance(event, dict):
                self.annotations.add(Row(number, event), where)
            self.lines = number

    def _append(self, event: Mapping[str, Any]) -> Row:
        end = self.path.stat().st_size if self.path.is_file() else 0
        try:
            append_line(self.path, event, flush=True)
        except BertsmithError:  # a full disk: the next line must not continue half of this one
            if self.path.is_file():
                os.truncate(self.path, end)
            raise
        self.lines += 1
        row = Row(self.lines, dict(event))
        self.annotations.add(row, Where(str(self.path), self.lines))
        return row

    def add(self, kind: str, number: str, by: str, **more: Any) -> Row:
        """Append an event; one whose number is there already is not repeated."""
        with self.lock:
            if number in self.annotations.ids:
                return self.annotations.ids[number]
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            about = {"event": kind, "event_id": number, "annotator": by, "at": now}
            more = {key: value for key, value in more.items() if value is not None}
            return self._append(about | more | about)


def _is_ours(content: bytes) -> bool:
    """Whether a file begins with the plan of a labelling, or with as much of it as there is."""
    first, complete, _ = content.partition(b"\n")
    if not complete:
        start = json.dumps({PLAN: {}}).encode()[:-2]
        return first[: len(start)] == start[: len(first)]
    return PLAN in (parse_table(first) or {})


@contextmanager
def opened(path: str | Path, plan: Mapping[str, Any]) -> Iterator[LabelFile]:
    """Open a file of labels for this process alone; it is made where it is not there."""
    place = Path(path)
    with locked_file(place.with_name(f".{place.name}.lock"), place):
        yield LabelFile(place, plan)


def agreement_of(annotations: Annotations) -> dict[str, Any]:
    """Return alpha of all people and kappa of every two, on what several of them labelled.

    What counts is a text with its label; of several labels, each; of marked words, every word.
    """
    form = reading_named(annotations.plan["task"]).labelling
    assert form is not None
    shared = [rows for name in annotations.answers if len(rows := annotations.labels_of(name)) > 1]
    units: list[list[Any]] = []
    pairs: dict[tuple[str, str], tuple[list[Any], list[Any]]] = {}
    for rows in shared:
        labels = annotations.plan["labels"]
        values = {by: form.units(row.cells, labels) for by, row in sorted(rows.items())}
        units += map(list, zip(*values.values(), strict=True))
        for first, second in combinations(values, 2):
            sides = pairs.setdefault((first, second), ([], []))
            sides[0].extend(values[first])
            sides[1].extend(values[second])
    return {
        "texts": len(shared),
        "alpha": krippendorff_alpha(units, interval=form.numeric),
        "pairs": [
            {"people": list(names), "units": len(sides[0]), "kappa": cohen_kappa(*sides)}
            for names, sides in pairs.items()
        ],
        "disagreed": sum(annotations.disagreed(name) for name in annotations.answers),
    }


def agreement(labels: str | Path) -> dict[str, Any]:
    """Return the agreement of the people who made a file of labels."""
    tables = json_lines_tables(Stream(Path(labels)), PORTION)
    annotations = read_events((row for table in tables for row in table.rows), str(labels))
    if "task" not in annotations.plan:
        raise BertsmithError(f"{labels} is not a file of labels that `bertsmith label` wrote")
    return agreement_of(annotations)
