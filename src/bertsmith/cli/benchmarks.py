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
    from bertsmith.finetuning.benchmarks import BenchmarkRow
    from bertsmith.finetuning.trials import Trial

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
    "limit": (int, option(0, "Train on this many examples only; 0: all.")),
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

    rows = run_glue(model, _folder(data, "glue"), task or (), **_checked(training))
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
    _show(run_squad(model, folder, version=version, **_checked(training)), as_json)


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
    _show(run_conll(model, folder, **_checked(training)), as_json)


def _folder(given: Path | None, name: str) -> Path:
    """The folder that was given, else that of the benchmark in the environment's."""
    return benchmark_folder(name, "give the folder") if given is None else given


def _checked(training: dict[str, Any]) -> dict[str, Any]:
    tasks.check_limit(training["limit"])
    return training | {"watch": SeedProgress()}


class SeedProgress(TrainingProgress):
    """Tells a person of each seed that is finished; on a terminal also of its steps."""

    def __init__(self) -> None:
        super().__init__(introduction=(), quiet=False)

    def begin(self, task: str, seed: int) -> None:
        """Name what steps are of."""
        self.which = f"{task}, seed {seed}: "

    def epoch(self, row: dict[str, Any]) -> None:
        """Wait for the seed's end."""

    def finish(self, trial: Trial, metrics: Sequence[str], stored: bool) -> None:
        """Show a seed's scores."""
        scores = "".join(f"{name} {tasks.shown(trial.dev[name])}, " for name in metrics)
        ending = " (stored)" if stored else ""
        line = f"{trial.task}, seed {trial.seed}: {scores}{trial.minutes:.1f} minutes{ending}"
        typer.echo(f"\r{line:70}" if self.live else line, err=True)


def _show(rows: Iterator[BenchmarkRow], as_json: bool, average: bool = False) -> None:
    """One table. What is absent is named, and there is no average over what is not there."""
    from bertsmith.finetuning.benchmarks import by_task

    done = []
    for row in rows:
        done.append(row)
        if as_json:
            shared.print_json([finite(asdict(row)) | {"mean": row.mean if row.scores else None}])
    if not any(row.scores for row in done):
        raise BertsmithError("; ".join(f"{row.task}: {row.note}" for row in done))
    means = by_task(done)
    absent = [row.task for row in done if not row.scores]
    if not as_json:
        _show_table(done)
    if average and len(means) > 1:
        mean = fmean(means.values())
        if as_json:
            shared.print_json([{"mean": mean, "tasks": list(means), "without": absent}])
        else:
            without = f", without {', '.join(absent)}" if absent else ""
            typer.echo(f"mean of {len(means)} tasks{without}: {mean:.4f}")
    for row in done:
        if row.note and not as_json:
            shared.note(f"{row.task}: {row.note}")


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
