"""How far the people agree who made a file of labels."""

from itertools import combinations
from pathlib import Path
from typing import Any

from bertsmith.data.annotations import Annotations, read_events
from bertsmith.data.records import json_lines_tables
from bertsmith.data.streams import Stream
from bertsmith.data.tables import PORTION
from bertsmith.errors import BertsmithError
from bertsmith.metrics.agreement import cohen_kappa, krippendorff_alpha
from bertsmith.tasks.reading import reading_named


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
        for one, other in combinations(values, 2):
            sides = pairs.setdefault((one, other), ([], []))
            sides[0].extend(values[one])
            sides[1].extend(values[other])
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
    annotations = read_events((row for one in tables for row in one.rows), str(labels))
    if "task" not in annotations.plan:
        raise BertsmithError(f"{labels} is not a file of labels that `bertsmith label` wrote")
    return agreement_of(annotations)
