"""Thousands of inputs through a model: sorted by length, packed to a budget, back in order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch

from bertsmith.batch import Batch
from bertsmith.infer.windows import Window
from bertsmith.model import Hidden, Model

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")
Result = TypeVar("Result")
Compute = Callable[[Hidden, Batch, Sequence[Window]], Sequence[Result]]

# Tokens in a batch. On a CPU few enough for the states to stay in cache, on a GPU enough to
# keep it busy.
BUDGETS = {"cpu": 2048, "cuda": 65536}
STEP = 64


class EncoderPass(NamedTuple):
    """Windows that a task needs encoded, and what it computes from their hidden states.

    `compute` returns one result for each window of a batch. Passes of one model with equal `key`
    have the same `compute`, so a server can encode the windows of many requests together.
    """

    windows: Sequence[Window]
    compute: Compute[Any]
    key: Hashable


# A task as a generator: it yields the passes it needs and receives a result for each window.
Steps = Generator[EncoderPass, list[Any], Result]


def run(
    model: Model,
    windows: Sequence[Window],
    compute: Compute[Result],
    *,
    device: torch.device,
    budget: int | None = None,
    progress: bool | None = None,
) -> list[Result]:
    """Encode every window and let `compute` make one result of each.

    `compute` gets hidden states, the batch, and the windows in it. Longest come first,
    so that a batch which does not fit fails at once. A progress bar is shown on a terminal.
    """
    lengths = [len(window.ids) for window in windows]
    plan = list(packed(lengths, budget or BUDGETS.get(device.type, 2048)))
    results: dict[int, Result] = {}
    with torch.inference_mode(), token_bar(sum(lengths), len(plan), progress) as advance:
        for chosen in plan:
            group = [windows[number] for number in chosen]
            hidden, batch = encode(model, group, device)
            outputs = compute(hidden, batch, group)[: len(group)]
            results.update(zip(chosen, outputs, strict=True))
            advance(sum(len(window.ids) for window in group))
    return [results[number] for number in range(len(windows))]


def encode(model: Model, windows: Sequence[Window], device: torch.device) -> tuple[Hidden, Batch]:
    """The hidden states of windows, and the batch that they are in.

    On a CPU in half precision the batch may have sequences of no use after those of the windows.
    """
    ids, segments = [one.ids for one in windows], [one.segments for one in windows]
    # Fillers are no longer than the longest window: position tables end somewhere.
    spare, longest = -sum(map(len, ids)) % _step(model, device), max(map(len, ids))
    fillers = [[0] * min(longest, spare - start) for start in range(0, spare, longest)]
    batch = Batch.of([*ids, *fillers], [*segments, *fillers]).to(device)
    return model.encoder(batch), batch


def _step(model: Model, device: torch.device) -> int:
    """The number that a batch's tokens are filled up to a multiple of, by a sequence of no use.

    On a CPU in half precision oneDNN prepares again for each new number of rows,
    which takes longer than the rows; with few different numbers it seldom does.
    """
    half = next(model.parameters()).dtype != torch.float32
    return STEP if half and device.type == "cpu" else 1


def packed(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices in order of falling length, in groups of at most `budget` tokens."""
    longest_first = sorted(range(len(lengths)), key=lambda n: -lengths[n])
    return grouped(longest_first, lengths.__getitem__, budget)


def grouped(items: Iterable[Item], size: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Neighbours in groups whose sizes add up to at most `most`; a larger item is alone."""
    group: list[Item] = []
    total = 0
    for item in items:
        if group and total + size(item) > most:
            yield group
            group, total = [], 0
        group.append(item)
        total += size(item)
    if group:
        yield group


@contextmanager
def token_bar(total: int, batches: int, wanted: bool | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, where a person watches and there is something to see."""
    if wanted is None:
        wanted = sys.stderr.isatty() and batches > 4
    if not wanted:
        yield lambda tokens: None
        return
    with bar_of("{task.completed:,.0f} of {task.total:,.0f} tokens") as bar:
        task = bar.add_task("", total=total)
        yield lambda tokens: bar.advance(task, tokens)


def bar_of(text: str) -> Progress:
    """A progress bar on standard error with a text and the time left; it vanishes at its end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = BarColumn(), TextColumn(text), TimeRemainingColumn()
    return Progress(*columns, console=Console(stderr=True), transient=True)
