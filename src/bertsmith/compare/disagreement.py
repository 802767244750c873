"""Examples on which variants disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.compare.results import plain, runs_of
from bertsmith.compare.work import Worker
from bertsmith.tasks.registry import task_named

SHOWN = 12  # examples of a task
LONGEST = 400  # characters of an example


@dataclass(frozen=True)
class Disagreement:
    """An example with the share of each variant's runs that are right on it."""

    text: str
    label: str
    correctness: dict[str, float]


def correctness_of(worker: Worker, budget: str, task: str) -> dict[str, Any]:
    """The mean correctness of each variant's runs on every test example (N,)."""
    test = worker.test(task)
    kind, examples = task_named(test.task), test.examples
    rows: dict[str, NDArray[np.float64]] = {}
    for name in worker.spec.variants:
        runs = runs_of(worker, budget, task, name)
        values = [one["values"] for numbers in runs.values() for one in numbers.values()]
        if values:
            rows[name] = np.mean(
                [
                    [
                        kind.correctness(example, plain(value))
                        for example, value in zip(examples, run, strict=True)
                    ]
                    for run in values
                ],
                axis=0,
            )
    return rows


def flips(rows: dict[str, Any], perfect: float) -> list[list[float]]:
    """Share of examples (%) that the row's variant has right and the column's has wrong.

    A variant has an example right if most of its runs have.
    """
    right = [row > perfect - 0.5 for row in rows.values()]
    return [
        [float("nan") if a is b else 100 * float((a & ~b).mean()) for b in right] for a in right
    ]


def disagreements(worker: Worker, task: str, rows: dict[str, Any]) -> list[Disagreement]:
    """The examples on which variants differ most."""
    test = worker.test(task)
    kind = task_named(test.task)
    spread = np.max(list(rows.values()), axis=0) - np.min(list(rows.values()), axis=0)
    order = np.argsort(-spread, kind="stable")[:SHOWN]
    return [
        Disagreement(
            _cut(" | ".join(test.examples[place].texts)),
            _cut(kind.spoken(kind.label_of(test.examples[place]))),
            {name: float(row[place]) for name, row in rows.items()},
        )
        for place in order.tolist()
        if spread[place] > 0
    ]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
