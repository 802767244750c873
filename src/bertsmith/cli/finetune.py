"""`bertsmith finetune`: a data file → a model directory with a report."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bertsmith.cli import shared, tasks
from bertsmith.cli.declare import flag, option, options_of
from bertsmith.errors import BertsmithError
from bertsmith.numbers import parse_number, parse_whole
from bertsmith.settings.finetuning import FinetuningSettings, TrialSettings

if TYPE_CHECKING:
    from bertsmith.finetuning import FinetuningResult
    from bertsmith.tasks.splits import Splits


SETTINGS = options_of(FinetuningSettings, optional=True)


def finetune(
    model: shared.Model,
    train: Path = tasks.TRAIN,
    out: Path = option(..., "The directory to write the model to."),
    dev: Path | None = option(None, "Development data, to choose the best epoch."),
    test: Path | None = option(None, "Test data, scored once at the end."),
    task: tasks.Task = None,
    label_names: tasks.LabelNames = None,
    hold_out: float = option(
        0.1, "Fraction of the data held out as development data, without --dev."
    ),
    corrections: Path | None = option(
        None, "Rows to leave out and labels to correct: the decisions of `check --model`."
    ),
    trials: Any = options_of(TrialSettings),
    settings: Any = SETTINGS,
    adapter: bool = flag("--adapter", "Write what LoRA trained as an adapter, in PEFT's layout."),
    log: shared.Log = None,
    resume: shared.Resume = False,
    overwrite: shared.Overwrite = False,
    device: shared.Device = None,
    as_json: shared.Json = False,
    columns: Any = tasks.COLUMNS,
) -> None:
    """Fine-tune a model on your data.

    The task and the columns are detected unless you name them; without --dev a part of the file is
    held out. transformers can open the resulting directory, which also contains report.html. After
    Ctrl-C it contains the best epoch so far, and the same command with --resume continues.
    """
    from bertsmith.finetuning import finetune as train_on
    from bertsmith.finetuning import read_splits
    from bertsmith.finetuning.run import demand_data
    from bertsmith.finetuning.work import check_out

    check_out(out, overwrite, resume)
    demand_data(train)
    splits = read_splits(
        train,
        dev,
        test,
        task=task,
        label_names=tasks.names_of(label_names),
        hold_out=0.0 if trials["auto"] or trials["folds"] else hold_out,
        corrections=corrections,
        **tasks.reading(columns),
    )
    swept = bool(trials["sweep"] or trials["sweep_rates"] or trials["sweep_epochs"])
    progress = TrainingProgress(_introduction(model, splits, settings, swept), quiet=as_json)
    trials["sweep"] = swept
    trials["sweep_rates"] = _numbers(trials["sweep_rates"], parse_number, "--sweep-rates")
    trials["sweep_epochs"] = _numbers(trials["sweep_epochs"], parse_whole, "--sweep-epochs")
    result = train_on(
        model,
        splits,
        out,
        **trials,
        device=device,
        overwrite=overwrite,
        resume=resume,
        adapter=adapter,
        log=log or (),
        watch=progress,
        **settings,
    )
    shared.output(as_json, [result.to_dict()], lambda: _show(result, progress.shown))


def _numbers(text: str, parse: Any, option: str) -> list[Any]:
    numbers = [parse(number) for number in text.split(",")] if text else []
    if None in numbers:
        raise BertsmithError(f"{option}: {text!r} is not a comma-separated list of numbers")
    return numbers


def _introduction(
    model: str, splits: Splits, settings: Mapping[str, Any], swept: bool
) -> Iterator[str]:
    from bertsmith.finetuning.setup import SWEPT, chosen_settings
    from bertsmith.tasks.check import open_reader, quick

    yield from tasks.understood(splits.train)
    yield from splits.train.ledger.lines()
    yield from chosen_settings(model, splits, settings, swept=SWEPT if swept else ())[1]
    for line in quick(splits, open_reader(model)):
        yield f"check: {line}"


SIMPLER = "use this simpler model"  # in notes that warn of a baseline


WIDTH = 60  # of a line that replaces another on a terminal


class TrainingProgress:
    """Reports the progress of a run: a line that changes on a terminal, else one each epoch."""

    def __init__(self, introduction: Iterable[str], quiet: bool) -> None:
        self.introduction = iter(introduction)  # after the first step: a mistake stands alone
        self.shown: set[str] = set()  # lines of the introduction
        self.quiet, self.live = quiet, sys.stderr.isatty() and not quiet
        self.prefix = ""  # names one of several runs
        self.first = (0, 0.0)  # the first step that was reported, and its time
        self.steps = (0, 0)  # done, and in total

    def step(self, done: int, total: int, loss: float) -> None:
        """Show a step in place of the last one."""
        for line in self.introduction:
            shared.note(line)
            self.shown.add(line)
        self.steps = done, total
        if done <= self.first[0] or not self.first[0]:
            self.first = done, time.monotonic()
        if self.live and (done % 5 == 0 or done == total):
            left, (first, began) = "", self.first
            if done > first:
                seconds = (time.monotonic() - began) / (done - first) * (total - done)
                minutes, hours = f"{seconds / 60:.0f} min", f"{seconds / 3600:.1f} h"
                duration = f"{seconds:.0f} s" if seconds < 90 else minutes
                left = f", {hours if seconds >= 5400 else duration} left"
            line = f"{self.prefix}step {done:,} of {total:,}, loss {loss:.4f}{left}"
            typer.echo(f"\r{line:<{WIDTH}}", err=True, nl=False)

    def say(self, line: str) -> None:
        """Show a result of `--auto`."""
        if not self.quiet:
            typer.echo(line, err=True)

    def epoch(self, row: dict[str, Any]) -> None:
        """Show an epoch's scores."""
        if not self.quiet:
            scores = {name: tasks.shown(value) for name, value in row.items()}
            done, total = self.steps
            if done:
                scores["epoch"] += f" of {round(total * row['epoch'] / done)}"
            line = ", ".join(f"{name} {value}" for name, value in scores.items())
            typer.echo(f"\r{line:<{WIDTH}}" if self.live else line, err=True)


def _show(result: FinetuningResult, shown: Collection[str]) -> None:
    """Show scores, and the notes that were not shown before."""
    assert result.out is not None
    best = result.kept
    columns = {split: best.scores.get(split) for split in ("dev", "test")}
    for baseline in (result.extras.get(name) or {} for name in ("baseline", "vectors")):
        for split, scores in (baseline.get("scores") or {}).items():
            columns[f"{split} ({baseline['short']})"] = scores
    if any(columns.values()):
        tasks.show_scores(columns)
    what = "folds" if result.folds else "seeds"
    for split in ("dev", "test"):
        summary = result.summary(split)
        if summary is not None and summary.count > 1:
            typer.echo(
                f"{split} {result.metric} over {summary.count} {what}: {summary.mean:.4f} ± "
                f"{summary.deviation:.4f} (95 %: {summary.interval})"
            )
    for line in [*result.notes, *best.bert.ledger.lines()]:
        if line not in shown:
            shared.note(line, colour="yellow" if SIMPLER in line else None)
    typer.echo(f"{result.task} model in {result.out}; see {result.out / 'report.html'}")
