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
TRAINING: tasks.Options = {
    "seeds": (
        Annotated[int, typer.Option(help="Train so often; more give mean and deviation.")],
        1,
    ),
    "limit": (
        Annotated[int, typer.Option(help="Use only the first examples to train on; 0: all.")],
        0,
    ),
    "learning_rate": (Annotated[float | None, typer.Option(help="At its highest.")], None),
    "epochs": (Annotated[int | None, typer.Option(help="Passes over the training file.")], None),
    "batch_size": (Annotated[int | None, typer.Option(help="Examples in a step.")], None),
    "device": (shared.Device, None),
    "dtype": (Annotated[str | None, typer.Option(help="float32 or bfloat16.")], None),
}


@tasks.takes(TRAINING, "training")
def glue(
    model: shared.Model,
    data: Data,
    task: Annotated[
        list[str] | None, typer.Option(help="Only this task (again for more): sst2, mrpc, ...")
    ] = None,
    as_json: shared.Json = False,
    training: Any = None,
) -> None:
    """Fine-tune and score a model on tasks of GLUE."""
    from bertsmith.tasks.benchmarks import run_glue

    _show(run_glue(model, data, task or (), **_checked(training)), as_json, average=True)


@tasks.takes(TRAINING, "training")
def squad(
    model: shared.Model,
    data: Data,
    version: Annotated[str, typer.Option(help="1.1 or 2.0; default: those that are there.")] = "",
    as_json: shared.Json = False,
    training: Any = None,
) -> None:
    """Fine-tune and score a model on SQuAD."""
    from bertsmith.tasks.benchmarks import run_squad

    _show(run_squad(model, data, version=version, **_checked(training)), as_json)


@tasks.takes(TRAINING, "training")
def conll(
    model: shared.Model, data: Data, as_json: shared.Json = False, training: Any = None
) -> None:
    """Fine-tune and score a model on tagged words."""
    from bertsmith.tasks.benchmarks import run_conll

    _show(run_conll(model, data, **_checked(training)), as_json)


def _checked(training: dict[str, Any]) -> dict[str, Any]:
    if training["limit"] < 0:
        limit = training["limit"]
        raise BertsmithError(f"--limit is a number of examples, or 0 for all, not {limit}")
    return training


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
