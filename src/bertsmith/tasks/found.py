"""The tasks that are there: every folder (or file) of this room that has one, found by looking."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.tasks.reading import Reading

HERE = Path(__file__).parent


def task_folders() -> list[str]:
    """Return the names of all tasks that can be learned: folders with a `reading.py`."""
    return sorted(path.parent.name for path in HERE.glob("*/reading.py"))


@cache
def readings() -> dict[str, Reading]:
    """Load the `READING` of every task by name, sorted by `order`; none of them imports PyTorch."""
    loaded = [import_module(f"bertsmith.tasks.{name}.reading").READING for name in task_folders()]
    return {one.name: one for one in sorted(loaded, key=lambda one: one.order)}


def reading_named(name: str) -> Reading:
    """Return the reading of a task."""
    if name not in readings():
        raise BertsmithError(f"unknown task {name!r}; known: {', '.join(readings())}")
    return readings()[name]


def uses() -> Iterator[Any]:
    """Load every `TASK`: of folders, from their `task.py`; of single files, from these."""
    for path in sorted([*HERE.glob("*.py"), *HERE.glob("*/task.py")]):
        if "\nTASK = " in path.read_text("utf-8"):
            module = ".".join(path.relative_to(HERE).with_suffix("").parts)
            yield import_module(f"bertsmith.tasks.{module}").TASK
