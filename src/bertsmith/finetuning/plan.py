"""The plan of a fine-tuning command, and the runs that it trains."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.finetuning.average import EPOCHS, WeightSnapshots, averaged
from bertsmith.finetuning.calibrate import (
    CalibrationOptions,
    calibrate,
    check_guarantee,
    check_rows,
    guarantee,
)
from bertsmith.finetuning.result import FinetuningResult, TrainingRun
from bertsmith.finetuning.settings import RunSettings
from bertsmith.finetuning.setup import forget_former, learned_from, limit_length
from bertsmith.finetuning.tuning import Scores, TrainingCallback, Tuning, progress_bar
from bertsmith.finetuning.work import PartialFolder
from bertsmith.infer.loaded import LoadedModel
from bertsmith.ledger import Ledger
from bertsmith.numbers import counted
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import Evaluation, evaluate, keep_settings, labelled, scored, tuned
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.splits import Splits, fold_numbers, folds_of, split_off
from bertsmith.tasks.training import Sample, Training
from bertsmith.train.distributed import Ranks
from bertsmith.train.loggers import LoggedRun, LoggerNames, Loggers, check_loggers

LOGS = ".logs"  # of a folder beside the model
INNER = 0.1  # of a fold's training rows, which choose the epoch


@dataclass(frozen=True)
class TrainingPlan:
    """What a command trains: one model on one data set, with several seeds or settings."""

    model: str | Path
    splits: Splits
    settings: RunSettings
    learn: Callable[[Dataset[Any], RunSettings], Training]  # how the task is learned
    open: Callable[[Training, RunSettings], LoadedModel]  # the model before its first step
    ranks: Ranks  # the processes that train together
    seeds: int = 1
    grid: tuple[RunSettings, ...] = ()  # of a sweep
    watch: TrainingCallback | None = None
    progress: bool | None = None  # a bar, where there is no `watch`; None: on a terminal
    calibration: CalibrationOptions | None = None
    baseline: bool = False  # is the result compared with a baseline?
    log: LoggerNames = ()  # loggers of each run
    place: Path | None = None  # of their files
    average: bool = False  # of seeds or epochs, where it is better
    adapter: bool = False  # is only an adapter written, without the model?
    notes: tuple[str, ...] = ()
    same: Mapping[str, Any] = field(default_factory=dict)  # what else must be equal on resume
    compared: Callable[[TrainingRun], dict[str, Any]] | None = None  # a student beside its teacher

    def say(self, message: str) -> None:
        """Report a message, if the callback takes messages."""
        getattr(self.watch, "say", lambda message: None)(message)

    def loggers(self, settings: RunSettings) -> Loggers:
        """The loggers of a run with these settings."""
        if not self.log or self.place is None or not self.ranks.first:
            return Loggers()
        rate, epochs = f"rate {settings.learning_rate:g}", f"{settings.epochs} epochs"
        what = [f"seed {settings.seed}"] * (self.seeds > 1) + [rate, epochs] * bool(self.grid)
        folder = self.place.joinpath(*filter(None, [", ".join(what)]))
        name = " ".join([self.place.name.removesuffix(LOGS), ", ".join(what)]).strip()
        return Loggers(self.log, LoggedRun(folder, name, settings.model_dump()), self.say)


@dataclass(frozen=True)
class Runs:
    """The runs of a command so far. Only the best has its model."""

    best: TrainingRun | None = None
    sweep: tuple[TrainingRun, ...] = ()
    seeds: tuple[TrainingRun, ...] = ()
    calibration: dict[str, Any] | None = None  # of the best, once it is calibrated
    average: dict[str, Any] | None = None  # what averages of weights were tried

    @property
    def kept(self) -> TrainingRun:
        """The best run."""
        assert self.best is not None
        return self.best

    def better(self, run: TrainingRun) -> Runs:
        """The same runs, of which this one may be the best."""
        return replace(self, best=run) if self.best is None or run.value > self.best.value else self

    def after(self, run: TrainingRun, *, swept: bool = False) -> Runs:
        """The runs with one more of the sweep or of the seeds."""
        runs, light = self.better(run), run.light()
        if swept:
            return replace(runs, sweep=(*self.sweep, light))
        return replace(runs, seeds=(*self.seeds, light))


def logs_of(log: LoggerNames, out: str | Path | None) -> Path | None:
    """The folder of loggers' files, beside an output directory; the loggers are checked."""
    check_loggers(log)
    if log and out is None:
        raise BertsmithError(
            f"loggers keep files beside the model: give it a place with {setting_name('out')}"
        )
    place = Path(os.path.realpath(out or "."))
    return place.with_name(place.name + LOGS) if log else None


class Stopped(KeyboardInterrupt):
    """A run was interrupted after an epoch; `finish` makes a run of its best epoch."""

    def __init__(self, finish: Callable[[], TrainingRun]) -> None:
        super().__init__()
        self.finish = finish


def train_all(plan: TrainingPlan, work: PartialFolder | None = None) -> Iterator[Runs]:
    """Train the sweep, then all seeds with its best settings; yield the runs after each."""
    runs, settings, weights = Runs(), plan.settings, None
    if plan.average:
        most = plan.seeds if plan.seeds > 1 else EPOCHS
        folder = None if work is None else work.folder / "weights"
        weights = WeightSnapshots(plan.ranks, folder, most)
    for own in plan.grid:
        runs = runs.after(train_one(plan, own, work, runs.best), swept=True)
        yield runs
    if plan.grid:
        settings = runs.kept.settings
    for seed in range(settings.seed, settings.seed + plan.seeds):
        own = settings.changed(seed=seed)
        if plan.grid and own == settings:  # the best run of the sweep
            if plan.splits.test is not None:
                runs = replace(runs, best=tested(plan, with_model(plan, runs.kept, work)))
            runs = runs.after(runs.kept)
        else:
            runs = runs.after(train_one(plan, own, work, runs.best, test=True, weights=weights))
        yield runs
    runs = replace(runs, best=with_model(plan, runs.kept, work))
    yield calibrated(plan, runs if weights is None else _averaged(plan, runs, weights))


def train_to_end(plan: TrainingPlan) -> Runs:
    """The runs of a plan without a folder for interrupted ones."""
    return deque(train_all(plan), maxlen=1).pop()


def _averaged(plan: TrainingPlan, runs: Runs, weights: WeightSnapshots) -> Runs:
    metric, kept = plan.settings.metric, runs.kept
    of, scores = "seeds", {run.settings.seed: run.value for run in runs.seeds}
    if plan.seeds == 1:
        rows = (row for row in kept.history.epochs if row.get(metric) is not None)
        of, scores = "epochs", {row["epoch"]: row[metric] for row in rows}
    run, content = averaged(kept, weights, scores, of, lambda: _evaluated(plan, kept.bert))
    return replace(runs, best=tested(plan, _on_dev(plan, run, run.dev)), average=content)


def calibrated(plan: TrainingPlan, runs: Runs) -> Runs:
    """The runs with the best model calibrated, where the plan says how."""
    kept = runs.kept
    if plan.calibration is None or kept.dev is None:
        return runs
    dev, content = calibrate(kept.bert, kept.dev, plan.settings.metric, plan.calibration)
    test, scores = kept.test, {**kept.scores, "dev": dev.scores}
    if plan.splits.test is not None and test is not None:
        before = test.scores
        test = evaluate(kept.bert, plan.splits.test)
        scores["test"] = test.scores
        if "calibration_error" in before:
            content["test_error_before"] = before["calibration_error"]
            content["test_error_after"] = test.scores["calibration_error"]
    best = replace(kept, dev=dev, test=test, scores=scores)
    return replace(runs, best=best, calibration=content)


def train_one(
    plan: TrainingPlan,
    settings: RunSettings,
    work: PartialFolder | None,
    best: TrainingRun | None,
    test: bool = False,
    weights: WeightSnapshots | None = None,
) -> TrainingRun:
    """One run, unless it is finished already; `best` is the best before it."""
    ranks = plan.ranks
    stored = None if work is None else ranks.run_on_first(lambda: work.finished(settings))
    if stored is not None:
        return TrainingRun(settings, *stored)
    seeds = plan.seeds > 1
    run = _trained(plan, settings, work, None if seeds else weights)
    if weights is not None and seeds:
        weights.add(settings.seed, run.bert.model)
    run = tested(plan, run) if test else run
    if work is not None and plan.seeds + len(plan.grid) > 1:
        better = best is None or run.value > best.value
        ranks.run_on_first(lambda: work.finish(settings, run, better))
    return run


def _trained(
    plan: TrainingPlan,
    settings: RunSettings,
    work: PartialFolder | None,
    weights: WeightSnapshots | None,
) -> TrainingRun:
    training, bert, samples = _start(plan, settings)
    evaluations: dict[int, Evaluation] = {}  # by epoch; those of the best

    def look() -> Scores:
        for epoch in evaluations.keys() - {tuning.best_epoch}:
            del evaluations[epoch]
        evaluations[tuning.epoch] = _evaluated(plan, bert)
        if weights is not None:
            weights.add(tuning.epoch, bert.model)
        return evaluations[tuning.epoch].scores

    def finish() -> TrainingRun:
        """The run with the weights of its best epoch."""
        tuning.finish()
        run = TrainingRun(settings, tuning.history, {"dev": None, "test": None}, bert)
        # Of an epoch before the run was resumed, there is only the model.
        run = _on_dev(plan, run, evaluations.get(tuning.history.best))
        return replace(run, scores={"dev": run.dev.scores if run.dev else None, "test": None})

    scored = None if plan.splits.dev is None else look
    state = None if work is None else work.state(settings)
    loggers = plan.loggers(settings)
    tuning = Tuning(bert, training, samples, settings, scored, None, state, plan.ranks, loggers)
    graphics = [bert.device] if bert.device.type == "cuda" else []
    bar = plan.progress if plan.ranks.first else False
    watch = progress_bar(bar) if plan.watch is None else nullcontext(plan.watch)
    try:
        with torch.random.fork_rng(graphics), watch as tuning.watch, loggers:  # draws stay
            tuning.run()
        return finish()
    except KeyboardInterrupt:
        if plan.ranks.abandoned:  # in a step that other ranks wait for
            plan.ranks.leave()
        if not tuning.best.weights:
            raise
        raise Stopped(finish) from None


def _start(plan: TrainingPlan, settings: RunSettings) -> tuple[Training, LoadedModel, list[Sample]]:
    training = plan.learn(plan.splits.train, settings)
    # Weights that are averaged begin with the same new head.
    same = settings.changed(seed=plan.settings.seed) if plan.average else settings
    bert = plan.open(training, same)
    bert.ranks = plan.ranks  # inference, too, is divided over them
    forget_former(bert, training)
    limit_length(bert, settings.max_length)
    return training, bert, training.samples(bert, learned_from(plan.splits.train, settings))


def _on_dev(plan: TrainingPlan, run: TrainingRun, dev: Evaluation | None = None) -> TrainingRun:
    """A run with its evaluation on the dev data, whose thresholds its model keeps."""
    if plan.splits.dev is None:
        return run
    bert, longest = run.bert, run.bert.max_length
    dev = dev or _evaluated(plan, bert)
    keep_settings(bert, dev.tuned)
    long = sum(
        sum(map(len, bert.tokenizer.encode_ids(list(example.texts)))) > longest
        for example in dev.dataset.examples
        if sum(map(len, example.texts)) > longest
    )
    bert.ledger.note("dev examples longer than the model reads at once, read in windows", long)
    return replace(run, dev=dev)


def _evaluated(plan: TrainingPlan, bert: LoadedModel) -> Evaluation:
    assert plan.splits.dev is not None
    bert.ledger, ledger = Ledger(), bert.ledger  # the ledger is about the training file
    try:
        return tuned(bert, labelled(plan.splits.dev), plan.splits.train)
    finally:
        bert.ledger = ledger


def tested(plan: TrainingPlan, run: TrainingRun) -> TrainingRun:
    """A run scored on the test file, if that was not done."""
    if plan.splits.test is None or run.scores.get("test") is not None:
        return run
    test = evaluate(run.bert, plan.splits.test)
    return replace(run, test=test, scores={**run.scores, "test": test.scores})


def with_model(plan: TrainingPlan, run: TrainingRun, work: PartialFolder | None) -> TrainingRun:
    """A run with its model, read from the disk if it was trained before a resume."""
    if run.model is not None or work is None:
        return run
    _, bert, _ = _start(plan, run.settings)
    if not work.load_best(run.settings, bert.model):
        raise BertsmithError(
            f"{work.folder}: the best weights are missing; remove it to start again"
        )
    bert.model.eval()
    run = _on_dev(plan, replace(run, model=bert))
    if plan.splits.test is not None and run.scores.get("test") is not None:
        run = replace(run, test=evaluate(bert, plan.splits.test))
    return run


def check_folds(plan: TrainingPlan) -> None:
    """Refuse a dev file, and guarantees that the rows cannot show."""
    if plan.splits.dev is not None:
        raise BertsmithError("folds score the rows of the training file: leave out the dev file")
    task = task_named(plan.splits.train.task)
    if plan.calibration is not None:
        check_guarantee(task, plan.calibration)
        check_rows(plan.splits.train, plan.calibration)


def across_folds(plan: TrainingPlan, folds: int) -> FinetuningResult:
    """Train and score each fold, then train on all rows for as many epochs as folds took.

    A tenth of the other rows chooses the epoch of a fold. Coverage and abstention are fitted on the
    predictions for all rows, each by a model that did not see it.
    """
    dataset = labelled(plan.splits.train)
    dataset = replace(dataset, known_labels=dataset.labels)
    uncalibrated = replace(plan, calibration=None)
    numbers = _spread(dataset, fold_numbers(dataset, folds, plan.settings.seed))
    runs: list[TrainingRun] = []
    examples, predictions = [], []
    for rest, held in folds_of(dataset, numbers):
        plan.say(f"fold {len(runs) + 1} of {max(numbers) + 1}")
        train, dev, _ = split_off(rest, INNER)
        best = train_to_end(replace(uncalibrated, splits=Splits(train, dev))).kept
        own = replace(dataset, examples=[dataset.examples[place] for place in held])
        fold = evaluate(best.bert, own)
        examples += own.examples
        predictions += fold.predictions
        runs.append(replace(best.light(), scores={"dev": fold.scores, "test": None}))
    epochs = max(1, round(median(run.history.best for run in runs)))
    settings = plan.settings.changed(epochs=epochs, keep="last", patience=0)
    plan.say(f"all rows, {counted(epochs, 'epoch')}")
    splits = Splits(dataset, None, plan.splits.test)
    kept = train_to_end(replace(uncalibrated, splits=splits, settings=settings)).kept
    pooled = scored(kept.bert, replace(dataset, examples=examples), predictions)
    extras = {}
    if plan.calibration is not None and plan.calibration.guaranteed:
        extras["calibration"] = guarantee(kept.bert, pooled, plan.calibration)
    kept = replace(kept, dev=pooled, scores={**kept.scores, "dev": pooled.scores})
    notes = [
        *plan.splits.notes,
        *plan.notes,
        f"dev scores are those of {len(runs)} folds, each by a model of the other rows; the model "
        f"itself was trained on all {len(dataset):,} rows for {counted(epochs, 'epoch')}",
    ]
    if alone := numbers.count(-1):
        notes.append(f"rows in no fold, since no other has their label: {alone:,}")
    about = dataset.task, plan.settings.metric, kept, [kept]
    return FinetuningResult(*about, folds=runs, notes=notes, extras=extras)


def _spread(dataset: Dataset[Any], numbers: list[int]) -> list[int]:
    """The same folds, but rows that have all examples of a label are in none (-1)."""
    owners: dict[str, set[int]] = {}
    for row, number in zip(dataset.examples, numbers, strict=True):
        for name in row.label_names:
            owners.setdefault(name, set()).add(number)
    alone = {name for name, several in owners.items() if len(several) == 1}
    return [
        -1 if alone.intersection(row.label_names) else number
        for row, number in zip(dataset.examples, numbers, strict=True)
    ]
