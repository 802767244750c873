"""All uses by verb, all tasks by name; and which task a model was trained for."""

from collections.abc import Sequence

from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.tasks.task import Task
from bertsmith.tasks.use import Use, uses

_ALL = sorted(uses(), key=lambda use: use.order)
# In the order in which they are tried for a model: the last fits every model.
TASKS: dict[str, Task] = {one.name: one for one in _ALL if isinstance(one, Task)}
# What models can be asked for; tasks that share a verb are asked in the same way.
USES: dict[str, Use] = {one.verb: one for one in reversed(_ALL) if one.verb}
USES = dict(sorted(USES.items(), key=lambda item: item[1].order))


def task_named(name: str) -> Task:
    """The task of this name."""
    if name not in TASKS:
        raise BertsmithError(f"unknown task {name!r}; known: {', '.join(TASKS)}")
    return TASKS[name]


def task_of(bert: LoadedModel, labels: Sequence[str] | None = None) -> Task:
    """The task that a model was trained for; with labels, one that chooses among given labels."""
    if labels is not None:
        for task in TASKS.values():
            if task.labels_given and task.can(bert):
                return task.with_labels(labels)
        raise BertsmithError("labels are for models that choose among given ones; omit them")
    fitting = (task for task in TASKS.values() if task.fits(bert.checkpoint))
    return min(fitting, key=lambda task: task.head is None)  # every model makes vectors
