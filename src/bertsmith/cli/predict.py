"""`bertsmith predict`: a prediction for every example of a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from bertsmith.cli import options as shared
from bertsmith.cli import tasks
from bertsmith.errors import BertsmithError

if TYPE_CHECKING:
    from bertsmith.data.inputs import Stretch

FEW = 32  # examples at once that are explained, which takes long


@tasks.takes(tasks.COLUMNS, "columns")
def predict(
    model: shared.Model,
    file: Annotated[Path, typer.Argument(help="Examples in any known format, or lines of text.")],
    out: Annotated[
        Path | None, typer.Option(help="A .jsonl file; standard output by default.")
    ] = None,
    top: Annotated[int, typer.Option(help="Answers to show of each question.")] = 1,
    explain: Annotated[
        bool, typer.Option("--explain", help="Mark the words that mattered (slower).")
    ] = False,
    device: shared.Device = None,
    dtype: shared.Dtype = "float32",
    columns: Any = None,
) -> None:
    """Label, tag or answer what is in a file.

    Predictions are JSON lines in the file's order, written as they are made, so that a file of any
    size can be watched, or piped on.
    """
    from bertsmith.data.inputs import SIZE, read_inputs
    from bertsmith.tasks.predict import predict as guess
    from bertsmith.tasks.registry import task_of

    if top < 1:
        raise BertsmithError(f"--top is from 1 up, not {top}")
    bert = shared.open_model(model, device, dtype, None)
    bert.progress = False
    task = task_of(bert)
    size = FEW if explain else SIZE
    stretches = read_inputs(file, task.name, tasks.columns_of(columns), size, bert.ledger)
    with _stream(out) as stream, _bar(out) as advance:
        for stretch in stretches:
            for example, one in zip(
                stretch.examples, guess(bert, stretch.examples, top), strict=True
            ):
                row = _row(example) | one.output
                if explain:
                    row["explanation"] = task.explain(bert, example, one)
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            stream.flush()
            advance(stretch)
    if stretch.columns:
        shared.note(tasks.told(stretch.columns))
    shared.close(bert)


def _row(example: Any) -> dict[str, Any]:
    """What a prediction is about."""
    row = {"id": example.id} if hasattr(example, "id") else {}
    for name in ("text", "pair", "question", "prompt"):
        if (value := getattr(example, name, None)) is not None:
            row[name] = value
    return row


def _stream(out: Path | None) -> AbstractContextManager[IO[str]]:
    """Standard output, or a file that appears whole."""
    from bertsmith.files import atomic

    return nullcontext(sys.stdout) if out is None else atomic(out, "w")


@contextmanager
def _bar(out: Path | None) -> Iterator[Callable[[Stretch], None]]:
    """How much of the file is done and how long the rest may take, where a person watches."""
    if not sys.stderr.isatty() or (out is None and sys.stdout.isatty()):
        yield lambda stretch: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    shown = TextColumn("{task.percentage:.0f} %, {task.fields[examples]:,} examples")
    columns = (BarColumn(), shown, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0, examples=0)

        def advance(stretch: Stretch) -> None:
            done = bar.tasks[0].fields["examples"] + len(stretch.examples)
            bar.update(task, completed=stretch.share, examples=done)

        yield advance
