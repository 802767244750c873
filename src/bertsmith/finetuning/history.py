"""Progress callbacks of a fine-tuning run, and its history."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from bertsmith.infer.run import bar_of
from bertsmith.ledger import Ledger
from bertsmith.train.state import RunProgress


class TrainingCallback(Protocol):
    """A callback for the progress of a run."""

    def step(self, done: int, total: int, loss: float) -> None:
        """A step is done."""

    def epoch(self, row: dict[str, Any]) -> None:
        """An epoch is done: its seed, its number, its mean loss, and the scores if there are."""


class SilentCallback(TrainingCallback):
    """A callback that does nothing."""


@contextmanager
def progress_bar(wanted: bool | None) -> Iterator[TrainingCallback]:
    """A callback that draws a bar on standard error; by default on a terminal or in a notebook."""
    from rich.console import Console

    if wanted is None:
        wanted = sys.stderr.isatty() or Console().is_jupyter
    if not wanted:
        yield SilentCallback()
        return
    with bar_of("{task.description}{task.completed} of {task.total} steps") as bar:
        task = bar.add_task("", total=None)

        class Bar(SilentCallback):
            def step(self, done: int, total: int, loss: float) -> None:
                bar.update(task, completed=done, total=total, description=f"loss {loss:.4f}, ")

        yield Bar()


@dataclass
class History:
    """The losses and scores of a run, which the training loop records."""

    losses: list[float] = field(default_factory=list)  # of each step; NaN if it was skipped
    epochs: list[dict[str, Any]] = field(default_factory=list)
    best: int = 0  # the epoch that was kept, from 1
    planned: int = 0  # steps, if it does not stop early
    examples: int = 0
    seconds: float = 0.0  # of training, without evaluation

    @property
    def steps(self) -> int:
        """The number of steps."""
        return len(self.losses)

    @property
    def done(self) -> int:
        """The number of the last epoch that is finished."""
        return int(self.epochs[-1]["epoch"]) if self.epochs else 0

    @property
    def speed(self) -> float:
        """Examples per second."""
        return self.examples / self.seconds if self.seconds else 0.0

    def log(self, row: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """A step or an epoch is done."""
        self.seconds = timing["elapsed"]
        if "evaluated" in timing:
            self.epochs.append({name: value for name, value in row.items() if name != "step"})
        else:
            self.losses.append(math.nan if "skipped" in row else row["loss"])

    def kept(self) -> dict[str, Any]:
        """The history as plain values, for a checkpoint."""
        return asdict(self)

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Continue from the history in a checkpoint."""
        self.__dict__.update(kept)
        self.losses = [math.nan if loss is None else loss for loss in self.losses]

    def cut(self, progress: RunProgress) -> tuple[dict[str, int], list[str]]:
        """Do nothing: `restore` did it."""
        return {}, []

    def keep_ledger(self, ledger: Ledger) -> None:
        """Do nothing: the model has the ledger."""
