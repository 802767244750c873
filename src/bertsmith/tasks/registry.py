"""All tasks, by name; and which of them a model was trained for."""

from __future__ import annotations

from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.tasks.answering.task import ANSWERING
from bertsmith.tasks.choice.task import CHOICE
from bertsmith.tasks.classification.task import CLASSIFICATION
from bertsmith.tasks.multilabel.task import MULTILABEL
from bertsmith.tasks.regression.task import REGRESSION
from bertsmith.tasks.similarity.task import SIMILARITY
from bertsmith.tasks.tagging.task import TAGGING
from bertsmith.tasks.task import Task

# In the order in which heads are looked for: every model can do the last.
TASKS: dict[str, Task] = {
    task.name: task
    for task in (CLASSIFICATION, MULTILABEL, REGRESSION, TAGGING, ANSWERING, CHOICE, SIMILARITY)
}


def task_named(name: str) -> Task:
    """The task of this name."""
    if name not in TASKS:
        raise BertsmithError(f"unknown task {name!r}; known: {', '.join(TASKS)}")
    return TASKS[name]


def task_of(bert: LoadedModel) -> Task:
    """The task that a model was trained for, by its heads and config.json."""
    return next(task for task in TASKS.values() if task.fits(bert.checkpoint))
