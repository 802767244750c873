"""`bertsmith glue`, `squad` and `conll`: the known benchmarks from local files, in one table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertsmith.cli import options as shared
from bertsmith.cli import tasks
from bertsmith.errors import BertsmithError

if TYPE_CHECKING:
    from bertsmith.tasks.benchmarks import Row

Data = Annotated[Path, typer.Argument(help="The folder with the benchmark's files.")]
Seeds = Annotated[int, typer.Option(help="Train so often; more give mean and deviation.")]
Limit = Annotated[int, typer.Option(help="Use only the first examples to train on; 0: all.")]
Rate = Annotated[float | None, typer.Option("--learning-rate", help="At its highest.")]
Epochs = Annotated[int | None, typer.Option(help="Passes over the training file.")]
Size = Annotated[int | None, typer.Option("--batch-size", help="Examples in a step.")]
Half = Annotated[str | None, typer.Option("--dtype", help="float32 or bfloat16.")]


def glue(
    model: shared.Model,
    data: Data,
    task: Annotated[
        list[str] | None, typer.Option(help="Only this task (again for more): sst2, mrpc, ...")
    ] = None,
    seeds: Seeds = 1,
    limit: Limit = 0,
    learning_rate: Rate = None,
    epochs: Epochs = None,
    batch_size: Size = None,
    device: shared.Device = None,
    dtype: Half = None,
    as_json: shared.Json = False,
) -> None:
    """Fine-tune and score a model on tasks of GLUE."""
    from bertsmith.tasks.benchmarks import run_glue

    given = _given(seeds, limit, learning_rate, epochs, batch_size, device, dtype)
    _show(run_glue(model, data, task or (), **given), as_json, average=True)


def squad(
    model: shared.Model,
    data: Data,
    version: Annotated[str, typer.Option(help="1.1 or 2.0; default: those that are there.")] = "",
    seeds: Seeds = 1,
    limit: Limit = 0,
    learning_rate: Rate = None,
    epochs: Epochs = None,
    batch_size: Size = None,
    device: shared.Device = None,
    dtype: Half = None,
    as_json: shared.Json = False,
) -> None:
    """Fine-tune and score a model on SQuAD."""
    from bertsmith.tasks.benchmarks import run_squad

    given = _given(seeds, limit, learning_rate, epochs, batch_size, device, dtype)
    _show(run_squad(model, data, version=version, **given), as_json)


def conll(
    model: shared.Model,
    data: Data,
    seeds: Seeds = 1,
    limit: Limit = 0,
    learning_rate: Rate = None,
    epochs: Epochs = None,
    batch_size: Size = None,
    device: shared.Device = None,
    dtype: Half = None,
    as_json: shared.Json = False,
) -> None:
    """Fine-tune and score a model on tagged words."""
    from bertsmith.tasks.benchmarks import run_conll

    given = _given(seeds, limit, learning_rate, epochs, batch_size, device, dtype)
    _show(run_conll(model, data, **given), as_json)


def _given(
    seeds: int,
    limit: int,
    learning_rate: float | None,
    epochs: int | None,
    batch_size: int | None,
    device: str | None,
    dtype: str | None,
) -> dict[str, Any]:
    if limit < 0:
        raise BertsmithError(f"--limit is a number of examples, or 0 for all, not {limit}")
    return {
        "seeds": seeds,
        "limit": limit,
        "learning_rate": learning_rate,
        "epochs": epochs,
        "batch_size": batch_size,
        "device": device,
        "dtype": dtype,
    }


def _show(rows: Iterator[Row], as_json: bool, average: bool = False) -> None:
    """One table. What is absent is named, and there is no average over what is not there."""
    done = []
    for row in rows:
        done.append(row)
        if as_json:
            shared.print_json([asdict(row)])
    if as_json:
        return
    table = []
    for row in done:
        for name, one in row.scores.items():
            spread = f"± {one.deviation:.4f}" if one.count > 1 else ""
            between = f"{one.low:.4f} to {one.high:.4f}" if one.count > 1 else ""
            table.append((row.task, name, one.mean, spread, between, row.train, row.scored))
    heads = ("task", "score", "mean", "deviation", "95 %", "trained on", "scored on")
    tasks.show_table(heads, table)
    scored = [row for row in done if row.scores]
    absent = [row for row in done if not row.scores]
    if average and len(scored) > 1:
        mean = sum(row.mean for row in scored) / len(scored)
        without = f", without {', '.join(row.task for row in absent)}" if absent else ""
        typer.echo(f"mean of {len(scored)} tasks{without}: {mean:.4f}")
    for row in done:
        if row.note:
            shared.note(f"{row.task}: {row.note}")
