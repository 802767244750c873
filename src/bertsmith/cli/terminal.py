"""The consoles on which tables and progress are printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def console() -> Console:
    """Where tables go; as wide as the terminal, and as wide as they like where there is none."""
    from rich.console import Console

    class Tables(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich's own ends with status 1

    return Tables(highlight=False, width=None if sys.stdout.isatty() else 1000)


@contextmanager
def progress(
    *names: str, wanted: bool = True, transient: bool = True
) -> Iterator[Callable[..., None]]:
    """Bars with estimates of the time left, on a terminal; shown by calls of what is yielded.

    It takes a bar's name, what is done, the total, and a text that replaces the name.
    """
    if not wanted or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Left

    percent = TextColumn("{task.percentage:>3.0f}%")
    columns = (TextColumn("{task.description}"), BarColumn(), percent, Left(), TimeElapsedColumn())
    stderr = Console(stderr=True)
    with Progress(*columns, console=stderr, transient=transient, speed_estimate_period=300) as bar:
        tasks = {name: bar.add_task(name, total=None) for name in names}

        def show(name: str, done: float, total: float, text: str = "") -> None:
            bar.update(tasks[name], completed=done, total=total or None, description=text or name)

        yield show
