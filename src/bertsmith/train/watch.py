"""Progress of a run: a live view, lines, or nothing."""

import math
import sys
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from statistics import fmean
from typing import Any, Self

from bertsmith.errors import BertsmithError
from bertsmith.pages.runs.run import Curve
from bertsmith.train.building import Built
from bertsmith.train.flops import peak_rate, training_flops
from bertsmith.train.folder import RunFolder
from bertsmith.train.recipe import Recipe

BARS = "▁▂▃▄▅▆▇█"
PREDICT_TOKENS = ("masked_lm", "following_lm", "generator")
SPEED = 20  # steps over which speed is averaged


class Watch:
    """Base class of progress views: keeps the most recent values."""

    def __init__(self, folder: RunFolder, recipe: Recipe, setup: Built) -> None:
        self.recipe = recipe
        self.last: dict[str, Any] = {}
        self.held: dict[str, Any] = {}
        self.timings: list[tuple[float, int]] = []
        sizes: Any = {"tokens": recipe.train.micro_tokens, "masked": recipe.masking.rate}
        self.flops = training_flops(setup.learner, recipe.lengths()[-1][0], **sizes)
        self.peak = self.elapsed = 0.0
        self.useful, self.ranks = 1.0, 1
        self.unigram = 0.0  # unigram loss in nats, if tokens are predicted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def step(self, row: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Record the values of a step and show them."""
        if "loss" in row:
            self.last = dict(row)
            self.timings = [*self.timings, (timing["seconds"], timing["tokens"])][-SPEED:]
            self.elapsed, self.useful = timing["elapsed"], timing["useful"]
            self.ranks = timing["ranks"]
        else:
            self.held = dict(row)
        self.show(row)

    def show(self, row: Mapping[str, Any]) -> None:
        """Show a step."""

    def say(self, message: str) -> None:
        """Show a message."""

    def speed(self) -> float:
        """Tokens a second over the last steps."""
        seconds = sum(second for second, _ in self.timings)
        return sum(tokens for _, tokens in self.timings) / seconds if seconds else 0.0

    def share(self) -> float:
        """The share of a device's measured peak that each rank uses."""
        if not self.peak:
            self.peak = peak_rate(self.recipe.train.precision, self.recipe.train.device)
        return self.speed() / self.ranks * self.flops / self.peak

    def time_left(self) -> str:
        """The estimated time until the end: 0:05:00, or 3 days, 7:50:00."""
        train, seconds = self.recipe.train, [second for second, _ in self.timings]
        left = (train.steps - self.last.get("step", 0)) * sum(seconds) / max(len(seconds), 1)
        if train.minutes:
            left = max(0.0, 60 * train.minutes - self.elapsed)
        return f"{timedelta(seconds=round(left))} left"


class Notes(Watch):
    """Print notes only."""

    def say(self, message: str) -> None:
        """Print it."""
        print(f"note: {message}", file=sys.stderr, flush=True)


class Lines(Notes):
    """Print lines at intervals, for logs and pipes."""

    printed = 0.0

    def show(self, row: Mapping[str, Any]) -> None:
        """Print a line every few seconds at most, and after every evaluation."""
        held = "loss" not in row
        if not held and time.monotonic() - self.printed < 5 and row["step"] > 1:
            return
        self.printed = time.monotonic()
        numbers = {k: v for k, v in row.items() if isinstance(v, float)}
        text = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        speed = "" if held else f"  {self.speed():,.0f} tokens/s, {self.time_left()}"
        of = f" of {self.recipe.train.steps}" if self.recipe.train.steps else ""
        print(f"step {row['step']:6}{of}  {text}{speed}", file=sys.stderr, flush=True)


class Live(Watch):
    """A live view: progress, losses, speed."""

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.live import Live as View

        self.losses = Curve()
        self.view = View(console=Console(stderr=True), refresh_per_second=4, transient=False)
        self.view.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.view.__exit__(*error)

    def show(self, row: Mapping[str, Any]) -> None:
        """Redraw the view."""
        if math.isfinite(row.get("loss", math.nan)):
            self.losses.add(row["step"], row["loss"])
        self.view.update(self.picture())

    def say(self, message: str) -> None:
        """Print it above the view."""
        self.view.console.print(f"note: {message}", highlight=False, markup=False)

    def picture(self) -> Any:
        """The whole view."""
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        train, step = self.recipe.train, self.last.get("step", 0)
        done = step / train.steps if train.steps else self.elapsed / (60 * train.minutes)
        of = f" of {train.steps:,}" if train.steps else ""
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(justify="right", style="dim", width=14)
        grid.add_column()
        grid.add_row("", ProgressBar(total=1.0, completed=min(done, 1.0)))
        grid.add_row("step", f"{step:,}{of}, {self.time_left()}")
        for name, value in self.last.items():
            if name.endswith("_accuracy"):
                term = name.removesuffix("_accuracy")
                held = self.held.get(f"held_out_{term}")
                more = "" if held is None else f"   held out {held:.3f}"
                if self.unigram and term in PREDICT_TOKENS:
                    more += f"   (word frequencies alone: {self.unigram:.3f})"
                grid.add_row(term, f"{self.last[term]:.3f}, accuracy {value:.1%}{more}")
        losses = curve([loss for _, loss in self.losses.points()])
        grid.add_row("loss", f"{self.last.get('loss', 0):.3f}  {losses}")
        rate, norm = self.last.get("learning_rate", 0), self.last.get("gradient_norm", 0)
        grid.add_row("learning rate", f"{rate:.2e}, gradient norm {norm:.2f}")
        peak = "this device's peak" if self.ranks == 1 else "each device's peak"
        grid.add_row("speed", f"{self.speed():,.0f} tokens/s, {self.share():.0%} of {peak}")
        if self.ranks > 1:
            each = self.timings[-1][1] / self.ranks if self.timings else 0.0
            share = f"{each:,.0f} tokens a step each, {self.useful:.0%} of the work useful"
            grid.add_row(f"{self.ranks} ranks", share)
        return Panel(grid, title=self.recipe.about or self.recipe.model.size, title_align="left")


def curve(values: list[float], width: int = 40) -> str:
    """Return a sparkline of values, each of its bars the mean of as many."""
    if len(values) < 2:
        return ""
    size = -(-len(values) // width)
    means = [fmean(values[start : start + size]) for start in range(0, len(values), size)]
    low, high = min(means), max(means)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((mean - low) * scale)] for mean in means)


MakeWatch = Callable[[RunFolder, Recipe, Built], Watch]  # creates a custom view


def watcher(show: str | MakeWatch | None, folder: RunFolder, recipe: Recipe, setup: Built) -> Watch:
    """Return the requested view; by default "live" on a terminal, else "lines"."""
    kind = show or ("live" if sys.stderr.isatty() else "lines")
    view = VIEWS[kind] if isinstance(kind, str) else kind
    return view(folder, recipe, setup)


VIEWS: dict[str, MakeWatch] = {"live": Live, "lines": Lines, "none": Watch}


def check_view(show: str | MakeWatch | None) -> None:
    """Raise an error for an unknown view, before anything is written."""
    if isinstance(show, str) and show not in VIEWS:
        raise BertsmithError(f"unknown view {show!r}; known: {', '.join(VIEWS)}")
