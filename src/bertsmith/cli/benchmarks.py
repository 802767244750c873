"""`bertsmith glue`, `squad` and `conll`: benchmarks from local files, in one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import typer

from bertsmith.cli import shared, tasks
from bertsmith.cli.declare import Options, argument, option
from bertsmith.cli.finetune import SETTINGS, TrainingProgress
from bertsmith.data.folders import HOME, benchmark_folder
from bertsmith.errors import BertsmithError
from bertsmith.files import finite

if TYPE_CHECKING:
    from bertsmith.finetuning.benchmarks import BenchmarkRow, Trial

DATA = argument(
    None, f"The folder with the benchmark's files; default: in the folder that {HOME} names."
)
NAMES = ["seed", "learning_rate", "optimizer", "matrix_learning_rate", "layer_decay", "epochs"]
NAMES += ["batch_size", "dtype", "parallel"]
TRAINING: Options = {
    "seeds": (int, option(1, "Number of training runs; reports median and standard deviation.")),
    "out": (
        Path | None,
        option(None, "Store finished seeds in this .jsonl file, and continue from it."),
    ),
    "limit": (int, option(0, "Train on this many examples only; 0: all.", min=0)),
    **{name: SETTINGS[name] for name in NAMES},
    "device": (shared.Device, None),
}


def glue(
    model: shared.Model,
    data: Path | None = DATA,
    task: list[str] | None = option(None, "Only this task; repeatable: sst2, mrpc, ..."),
    as_json: shared.Json = False,
    training: Any = TRAINING,
) -> None:
    """Fine-tune and score a model on tasks of GLUE."""
    from bertsmith.finetuning.benchmarks import run_glue

    folder = data or benchmark_folder("glue", "give the folder")
    rows = run_glue(model, folder, task or (), watch=SeedProgress(), **training)
    _show(rows, as_json, average=True)


def squad(
    model: shared.Model,
    data: Path | None = DATA,
    version: str = option("", "Version of SQuAD: 1.1 or 2.0 [default: all in the folder]."),
    as_json: shared.Json = False,
    training: Any = TRAINING,
) -> None:
    """Fine-tune and score a model on SQuAD."""
    from bertsmith.finetuning.benchmarks import run_squad

    folder = data or benchmark_folder("squad", "give the folder")
    _show(run_squad(model, folder, version=version, watch=SeedProgress(), **training), as_json)


def conll(
    model: shared.Model,
    data: Path | None = DATA,
    as_json: shared.Json = False,
    training: Any = TRAINING,
) -> None:
    """Fine-tune and score a model on tagged words."""
    from bertsmith.finetuning.benchmarks import run_conll

    folder = data or benchmark_folder("conll", "give the folder")
    _show(run_conll(model, folder, watch=SeedProgress(), **training), as_json)


class SeedProgress(TrainingProgress):
    """Reports every finished seed, on a terminal also its steps."""

    def __init__(self) -> None:
        super().__init__(introduction=(), quiet=False)

    def begin(self, task: str, seed: int) -> None:
        """Name the run whose steps follow."""
        self.prefix = f"{task}, seed {seed}: "

    def epoch(self, row: dict[str, Any]) -> None:
        """Wait for the seed's end."""

    def finish(self, trial: Trial, metrics: Sequence[str], stored: bool) -> None:
        """Show a seed's scores."""
        scores = "".join(f"{name} {tasks.shown(trial.dev[name])}, " for name in metrics)
        ending = " (stored)" if stored else ""
        line = f"{trial.task}, seed {trial.seed}: {scores}{trial.minutes:.1f} minutes{ending}"
        typer.echo(f"\r{line:70}" if self.live else line, err=True)


def _show(rows: Iterator[BenchmarkRow], as_json: bool, average: bool = False) -> None:
    """Print one table; tasks without scores are named, and are no part of the average."""
    from bertsmith.finetuning.benchmarks import by_task

    results = []
    for row in rows:
        results.append(row)
        if as_json:
            shared.print_json([finite(asdict(row)) | {"mean": row.mean if row.scores else None}])
    if not any(row.scores for row in results):
        raise BertsmithError("; ".join(f"{row.task}: {row.note}" for row in results))
    means = by_task(results)
    absent = [row.task for row in results if not row.scores]
    mean = fmean(means.values())
    averaged = average and len(means) > 1
    if as_json:
        if averaged:
            shared.print_json([{"mean": mean, "tasks": list(means), "without": absent}])
        return
    _show_table(results)
    if averaged:
        without = f", without {', '.join(absent)}" if absent else ""
        typer.echo(f"mean of {len(means)} tasks{without}: {mean:.4f}")
    shared.notes(f"{row.task}: {row.note}" for row in results if row.note)


def _show_table(rows: Sequence[BenchmarkRow]) -> None:
    """A line for each score; over several seeds its median first."""
    scores = [(row, name, score) for row in rows for name, score in row.scores.items()]
    several = any(score.count > 1 for _, _, score in scores)
    over_seeds = ("median", "mean", "deviation", "95 %") if several else ("value",)
    table = []
    for row, name, score in scores:
        spread = (f"± {score.deviation:.4f}", score.interval)
        values = (score.median, score.mean, *spread) if several else (score.mean,)
        table.append((row.task, name, *values, row.train, row.scored))
    tasks.show_table(("task", "score", *over_seeds, "trained on", "scored on"), table)
