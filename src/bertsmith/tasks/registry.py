"""All tasks, by name; and which of them a model was trained for."""

from __future__ import annotations

from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.tasks.found import uses
from bertsmith.tasks.task import Task

# In the order in which heads are looked for: every model can do the last.
TASKS: dict[str, Task] = {
    task.name: task
    for task in sorted((one for one in uses() if isinstance(one, Task)), key=lambda one: one.order)
}


def task_named(name: str) -> Task:
    """The task of this name."""
    if name not in TASKS:
        raise BertsmithError(f"unknown task {name!r}; known: {', '.join(TASKS)}")
    return TASKS[name]


def task_of(bert: LoadedModel) -> Task:
    """The task that a model was trained for, by its heads and config.json."""
    fitting = (task for task in TASKS.values() if task.fits(bert.checkpoint))
    return min(fitting, key=lambda task: task.head is None)  # every model makes vectors
