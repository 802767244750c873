"""`bertsmith glue`, `squad` and `conll`: benchmarks from local files, in one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import typer

from bertsmith.cli import options as shared
from bertsmith.cli import tasks
from bertsmith.cli.declare import Options, argument, option, takes
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


@takes(TRAINING, "training")
def glue(
    model: shared.Model,
    data: Path | None = DATA,
    task: list[str] | None = option(None, "Only this task; repeatable: sst2, mrpc, ..."),
    as_json: shared.Json = False,
    training: Any = None,
) -> None:
    """Fine-tune and score a model on tasks of GLUE."""
    from bertsmith.finetuning.benchmarks import run_glue

    folder = _folder(data, "glue")
    rows = run_glue(model, folder, task or (), watch=SeedProgress(), **training)
    _show(rows, as_json, average=True)


@takes(TRAINING, "training")
def squad(
    model: shared.Model,
    data: Path | None = DATA,
    version: str = option("", "Version of SQuAD: 1.1 or 2.0 [default: all in the folder]."),
    as_json: shared.Json = False,
    training: Any = None,
) -> None:
    """Fine-tune and score a model on SQuAD."""
    from bertsmith.finetuning.benchmarks import run_squad

    folder = _folder(data, "squad")
    rows = run_squad(model, folder, version=version, watch=SeedProgress(), **training)
    _show(rows, as_json)


@takes(TRAINING, "training")
def conll(
    model: shared.Model,
    data: Path | None = DATA,
    as_json: shared.Json = False,
    training: Any = None,
) -> None:
    """Fine-tune and score a model on tagged words."""
    from bertsmith.finetuning.benchmarks import run_conll

    folder = _folder(data, "conll")
    _show(run_conll(model, folder, watch=SeedProgress(), **training), as_json)


def _folder(data: Path | None, name: str) -> Path:
    """The folder on the command line, by default that of the benchmark in the environment's."""
    return benchmark_folder(name, "give the folder") if data is None else data


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
    if not as_json:
        _show_table(results)
    if average and len(means) > 1:
        mean = fmean(means.values())
        if as_json:
            shared.print_json([{"mean": mean, "tasks": list(means), "without": absent}])
        else:
            without = f", without {', '.join(absent)}" if absent else ""
            typer.echo(f"mean of {len(means)} tasks{without}: {mean:.4f}")
    if not as_json:
        shared.notes(f"{row.task}: {row.note}" for row in results if row.note)


def _show_table(rows: Sequence[BenchmarkRow]) -> None:
    """A line for each score; over several seeds its median first."""
    scores = [(row, name, one) for row in rows for name, one in row.scores.items()]
    several = any(one.count > 1 for _, _, one in scores)
    over_seeds = ("median", "mean", "deviation", "95 %") if several else ("value",)
    table = []
    for row, name, one in scores:
        spread = (f"± {one.deviation:.4f}", one.interval)
        values = (one.median, one.mean, *spread) if several else (one.mean,)
        table.append((row.task, name, *values, row.train, row.scored))
    tasks.show_table(("task", "score", *over_seeds, "trained on", "scored on"), table)
