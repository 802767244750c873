"""Predictions for the examples of any task, one for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bertsmith.infer.loaded import LoadedModel
from bertsmith.tasks.registry import task_of
from bertsmith.tasks.task import Prediction, Task


def predict(
    bert: LoadedModel, examples: Sequence[Any], top: int = 1, task: Task | None = None
) -> list[Prediction]:
    """A prediction for every example; of answers, `output` holds the `top` best."""
    if not examples:
        return []
    task = task or task_of(bert)
    task.demand_kind(examples[0])
    return task.predict(bert, examples, top)
