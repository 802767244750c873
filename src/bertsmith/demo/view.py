"""Progress of the demo: a live display on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from bertsmith.demo.pictures import clock

OFTEN = 0.5  # seconds between pictures: to draw takes time from learning
SELDOM = 10.0  # seconds between lines where there is no terminal

Update = Callable[[Callable[[], RenderableType], str], None]


class View:
    """Headings and results that stay, and below them what is going on."""

    def __init__(self, console: Console, steps: int) -> None:
        self.console, self.steps, self.number = console, steps, 0
        self.width, self.live = min(console.width, 100) - 2, console.is_terminal
        self.began = time.monotonic()

    def heading(self, title: str, meaning: str) -> None:
        """Begin a step, and say what it means."""
        self.number += 1
        spent = clock(time.monotonic() - self.began)
        self.console.print()
        name = Text.assemble((f" {self.number} of {self.steps} ", "bold cyan"), (title, "bold"))
        self.console.print(
            Rule(Text.assemble(name, (f"  {spent} ", "dim")), align="left", style="dim")
        )
        self.show(Text(meaning, "dim"))

    def say(self, *parts: str | tuple[str, str]) -> None:
        """A line of result; with nothing in it, an empty one."""
        self.show(Text.assemble(*parts or [" "]))

    def copied(self, command: str) -> None:
        """A command as it is typed, however narrow the terminal: it is there to be copied."""
        self.console.print(f"   {command}", style="cyan", markup=False, soft_wrap=True)

    def show(self, picture: RenderableType) -> None:
        """A result of several lines."""
        self.console.print(_indented(picture))

    @contextmanager
    def moving(self, what: str) -> Iterator[Update]:
        """A place for a picture that changes; where there is no terminal, a line now and then."""
        drawn = 0.0
        if not self.live:

            def tell(make: Callable[[], RenderableType], line: str) -> None:
                nonlocal drawn
                if time.monotonic() - drawn >= SELDOM:
                    drawn = time.monotonic()
                    self.say(line)

            yield tell
            return
        last: Callable[[], RenderableType] | None = None
        spinner = Spinner("dots", Text(what, "dim"))
        with Live(spinner, console=self.console, refresh_per_second=4) as live:

            def draw(make: Callable[[], RenderableType], line: str) -> None:
                nonlocal drawn, last
                last = make
                if time.monotonic() - drawn >= OFTEN:
                    drawn = time.monotonic()
                    live.update(_indented(make()))

            yield draw
            if last is None:
                live.transient = True  # nothing to keep
            else:
                live.update(_indented(last()))


class Progress:
    """Shows the progress of a fine-tuning run."""

    def __init__(self, update: Update) -> None:
        self.update, self.scores = update, ""

    def step(self, done: int, total: int, loss: float) -> None:
        """A step is done."""
        line = f"step {done:,} of {total:,}, loss {loss:.3f}"
        self.update(lambda: self.picture(done, total, loss), line)

    def picture(self, done: int, total: int, loss: float) -> RenderableType:
        """A bar, and the scores of the last epoch."""
        row = Table.grid(padding=(0, 1))
        status = Text(f"loss {loss:.3f}  {self.scores}", "dim")
        row.add_row(ProgressBar(total, done, width=20), f"step {done:,} of {total:,}", status)
        return row

    def epoch(self, row: dict[str, Any]) -> None:
        """An epoch is done."""
        name = next((one for one in ("f1", "accuracy") if one in row), None)
        scores = f": {name} {row[name]:.1%}" if name else ""  # without dev data there are none
        self.scores = f"epoch {row['epoch']}{scores}"


def _indented(picture: RenderableType) -> Padding:
    return Padding(picture, (0, 1), expand=False)
