"""`finetune`: labelled data → a model directory with a report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, replace
from itertools import product
from pathlib import Path
from typing import Any

from bertsmith.checkpoint import built_in, demand_whole
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.finetuning.auto import Chosen, ModelSelection, auto_notes
from bertsmith.finetuning.average import sentence
from bertsmith.finetuning.calibrate import CalibrationOptions, calibration_options, reserved_rows
from bertsmith.finetuning.frozen import FrozenEncoder
from bertsmith.finetuning.plan import (
    Runs,
    Stopped,
    TrainingPlan,
    across_folds,
    calibrated,
    check_folds,
    logs_of,
    train_all,
    train_to_end,
    with_model,
)
from bertsmith.finetuning.result import FinetuningResult, TrainingRun, described, write_result
from bertsmith.finetuning.settings import RunSettings, check_seeds, listed
from bertsmith.finetuning.setup import SWEPT, chosen_settings, open_fresh
from bertsmith.finetuning.tuning import UNCHANGED, TrainingCallback
from bertsmith.finetuning.work import (
    RESUME,
    Interrupted,
    PartialFolder,
    check_out,
    data_sum,
    is_interrupted,
    model_sum,
    terminable,
)
from bertsmith.folders import reserved
from bertsmith.infer.loaded import pick_device
from bertsmith.reports.baseline import VECTORS, baseline, verdict
from bertsmith.settings import picked, taking
from bertsmith.settings.finetuning import FinetuningSettings, TrialSettings
from bertsmith.tasks.evaluate import sample_of
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.splits import Splits, read_splits
from bertsmith.tasks.training import LEARNED
from bertsmith.train.distributed import Ranks
from bertsmith.train.loggers import LoggerNames

BASELINE_ROWS = 5000  # of a training file, by which the baseline of vectors is fitted
LEARNED_ENOUGH = (
    f"{UNCHANGED} dev scores in a row were no better, and the training loss was below {LEARNED}"
    " or a third of all epochs had passed (keep last trains on)"
)


@taking(FinetuningSettings, usual=None)
@taking(TrialSettings)
def finetune(
    model: str | Path,
    data: str | Path | Splits,
    out: str | Path | None = None,
    *,
    dev: str | Path | None = None,
    test: str | Path | None = None,
    task: str | None = None,
    columns: Mapping[str, str] | None = None,
    label_names: Sequence[str] | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    format: str | None = None,
    hold_out: float = 0.1,
    corrections: Any = None,
    device: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    adapter: bool = False,
    log: LoggerNames = (),
    own_settings: bool = True,
    watch: TrainingCallback | None = None,
    progress: bool | None = None,
    **given: Any,
) -> FinetuningResult:
    """Fine-tune a model on a file (or a folder with train, dev and test files).

    The task is guessed unless given; `header`, `encoding` and `format` say how files are read, as
    in `open_data`; further arguments are those of `RunSettings` and `TrialSettings`. With `out`,
    the best model of all runs is written there with its report. An interrupted command keeps its
    state in `out`.partial, from which `resume` continues to the same result. `abstain` and
    `coverage` are fitted on half of the dev data, which nothing else uses. `corrections` is a file
    of decisions about rows whose label may be wrong, as `check` writes it. With `adapter` only what
    LoRA trained is written, in PEFT's layout. `log` names loggers (tensorboard, wandb, mlflow),
    whose files are in `out`.logs. `own_settings=False` ignores the settings in the model's
    bertsmith.json. `progress` shows a bar, by default on a terminal or in notebooks.
    """
    if out is not None:
        check_out(out, overwrite, resume)
    place = logs_of(log, out)
    trials = picked(TrialSettings, given)
    check_seeds(trials.seeds)
    demand_data(data)
    ranks, splits = Ranks(pick_device(device)), data
    if not isinstance(splits, Splits):
        splits = read_splits(
            data,
            dev,
            test,
            task=task,
            columns=columns,
            label_names=label_names,
            header=header,
            encoding=encoding,
            format=format,
            hold_out=0.0 if trials.auto or trials.folds else hold_out,  # they cross-validate
            corrections=corrections,
        )
    # Tags of all files are read as in the training file: one with only O tags has no scheme.
    dev_data, test_data = (
        None if dataset is None else replace(dataset, scheme=dataset.scheme or splits.train.scheme)
        for dataset in (splits.dev, splits.test)
    )
    splits = replace(splits, dev=dev_data, test=test_data)
    options = calibration_options(splits, trials)
    calibration: CalibrationOptions | None = options
    if not trials.folds:
        splits, calibration = reserved_rows(splits, options)
    settings, reasons = chosen_settings(
        model, splits, given, swept=SWEPT if trials.sweep else (), own=own_settings
    )
    if adapter and settings.trained != "lora":
        name = setting_name("adapter")
        raise BertsmithError(f"{name} stores what LoRA trains, and this run does not use LoRA")
    if adapter:
        demand_whole(model)
    plan = TrainingPlan(
        model,
        splits,
        settings,
        learn=lambda train, own: task_named(train.task).training(train, own),
        open=lambda training, own: open_fresh(model, training, own, ranks.device),
        ranks=ranks,
        seeds=trials.seeds,
        grid=_grid(splits, settings, trials) if trials.sweep else (),
        watch=watch,
        progress=progress,
        calibration=calibration,
        baseline=out is not None,
        adapter=adapter,
        log=log,
        place=place,
        average=trials.average,
        notes=tuple(reasons),
    )
    check_trials(plan, trials, resume)
    return carry_out(plan, None if out is None else Path(out), overwrite, resume, trials)


def check_trials(plan: TrainingPlan, trials: TrialSettings, resume: bool) -> None:
    """Refuse options that cannot be combined."""
    combined = {
        "folds": trials.folds and trials.auto,
        "sweep": trials.sweep,
        "seeds": trials.seeds > 1,
        "resume": resume,
        "adapter": plan.adapter and trials.auto,
        "calibrate": trials.calibrate and trials.folds,
        "log": plan.log,
        "average": plan.average,
    }
    way = "auto" if trials.auto else "folds" if trials.folds else ""
    for name, used in combined.items():
        if way and used:
            raise BertsmithError(f"{way} cross-validates, and cannot be combined with {name}")
    if plan.average:
        if plan.splits.dev is None:
            raise BertsmithError("average needs a dev file or held-out examples")
        if plan.seeds < 2 and plan.settings.epochs < 2:
            raise BertsmithError("average needs several seeds or epochs")
        if trials.sweep or plan.settings.trained == "lora":
            other = "sweep" if trials.sweep else "LoRA, whose updates are products"
            raise BertsmithError(f"average cannot be combined with {other}")
    if trials.auto and task_named(plan.splits.train.task).head is None:
        raise BertsmithError(f"auto is for tasks with a head, not for {plan.splits.train.task}")
    if trials.auto and plan.ranks.count > 1:
        raise BertsmithError("auto runs in one process: start it without torchrun")
    if trials.folds:
        check_folds(plan)


def demand_data(data: Any) -> None:
    """Refuse the name of a built-in model where data is expected."""
    if isinstance(data, str | Path) and str(data) in built_in() and not Path(data).exists():
        raise BertsmithError(f"{data} is a model: name the model first, then the data")


def carry_out(
    plan: TrainingPlan,
    out: Path | None,
    overwrite: bool,
    resume: bool,
    trials: TrialSettings | None = None,
) -> FinetuningResult:
    """Train all runs of a plan; the first of several processes writes the best model to `out`."""
    with plan.ranks.process_group(), ExitStack() as stack:
        if out is not None:
            stack.enter_context(terminable())
            plan.ranks.run_on_first(lambda: stack.enter_context(reserved(out)))
        if trials is not None and trials.auto:
            return _compared(plan, trials, out, overwrite)
        if trials is not None and trials.folds:
            result = across_folds(plan, trials.folds)
            result = replace(result, content=described(result, plan.splits, plan.model))
            return result if out is None else _write(plan, result, out, overwrite)
        if out is None:
            return result_of(plan, train_to_end(plan))
        return _written(plan, out, overwrite, resume)


def _compared(
    plan: TrainingPlan, trials: TrialSettings, out: Path | None, overwrite: bool
) -> FinetuningResult:
    written = False

    def write(chosen: Chosen) -> FinetuningResult:
        nonlocal written
        run, content = chosen
        runs = calibrated(plan, Runs(run, seeds=(run.light(),)))
        own = replace(plan, baseline=False, notes=tuple(auto_notes(content)))
        result = result_of(own, runs)
        report = {**result.content, "auto": content, "notes": result.notes}
        result = replace(result, content=report, extras={**result.extras, "auto": content})
        if out is None:
            return result
        result, written = _write(own, result, out, overwrite or written), True
        return result

    try:
        return write(ModelSelection(plan, trials.minutes).run(write))
    except KeyboardInterrupt:
        state = f"the first model is in {out}" if written else "nothing was written"
        raise Interrupted(f"interrupted: {state}") from None


def _written(plan: TrainingPlan, out: Path, overwrite: bool, resume: bool) -> FinetuningResult:
    """Train, and write the best model; after Ctrl-C, the best epoch so far."""
    ranks, runs, work = plan.ranks, Runs(), PartialFolder(out)
    # torchrun starts processes again that failed.
    resume = resume or (ranks.restarts > 0 and ranks.broadcast(work.store.begun()))
    replaceable = overwrite or (resume and is_interrupted(out))
    ranks.run_on_first(lambda: work.start(out, _description(plan), resume, overwrite))
    try:
        for so_far in train_all(plan, work):
            runs = so_far
        result = _write(plan, result_of(plan, runs), out, replaceable)
    except KeyboardInterrupt as stop:
        if ranks.count == 1 and not ranks.first:  # it left a step that others wait for
            raise Interrupted("interrupted") from None
        runs = runs.better(stop.finish()) if isinstance(stop, Stopped) else runs
        message = _write_interrupted(plan, runs, work, out, replaceable and is_interrupted(out))
        raise Interrupted(message) from None
    finally:
        if ranks.first and not work.holds_something:
            work.store.remove()
    ranks.run_on_first(work.store.remove)
    return result


def _write(
    plan: TrainingPlan, result: FinetuningResult, out: Path, replaceable: bool
) -> FinetuningResult:
    base = plan.model if plan.adapter else None
    plan.ranks.run_on_first(lambda: write_result(result, out, replaceable, base))
    return replace(result, out=out)


def _description(plan: TrainingPlan) -> dict[str, Any]:
    options = plan.calibration
    return {
        "model": model_sum(plan.model),
        "data": data_sum(plan.splits),
        "settings": plan.settings.model_dump(),
        "command": {
            "seeds": plan.seeds,
            "sweep": [[run.learning_rate, run.epochs] for run in plan.grid],
            "calibration": list(astuple(replace(options, held=None))) if options else [],
            **({"average": True} if plan.average else {}),
            **plan.same,
        },
    }


def result_of(plan: TrainingPlan, runs: Runs, interrupted: bool = False) -> FinetuningResult:
    """The result of the runs so far."""
    kept = runs.kept
    kept.bert.ranks = None  # from here on each process is for itself
    notes, extras = plan.ranks.run_on_first(lambda: _notes_and_extras(plan, runs, interrupted))
    mixed = bool(runs.average and runs.average["kept"])
    seeds, sweep = (  # the best as it is now, with its model
        [kept if run.settings == kept.settings and not mixed else run for run in group]
        for group in (runs.seeds, runs.sweep)
    )
    task, metric = plan.splits.train.task, plan.settings.metric
    result = FinetuningResult(task, metric, kept, seeds, sweep, notes, extras=extras)
    content = described(result, plan.splits, plan.model, interrupted)
    return replace(result, content=content)


def _notes_and_extras(
    plan: TrainingPlan, runs: Runs, interrupted: bool
) -> tuple[list[str], dict[str, Any]]:
    kept, extras = runs.kept, dict[str, Any]()
    notes = [*plan.splits.notes, *_score_notes(plan, kept), *plan.notes]
    if plan.compared is not None:
        extras["distillation"] = plan.compared(kept)
    if runs.average is not None:
        extras["average"] = runs.average
        notes.append(sentence(runs.average))
    if runs.calibration is not None:
        extras["calibration"] = runs.calibration
        if note := runs.calibration.get("note"):
            notes.append(f"calibration: {note}")
    done, planned = kept.history.done, kept.settings.epochs
    if interrupted:
        notes.append(f"interrupted after {done} of {planned} epochs")
    elif 0 < done < planned:
        patience = kept.settings.patience
        why = f"no better dev score in {patience} epochs" if patience else LEARNED_ENOUGH
        notes.append(f"stopped after {done} of {planned} epochs: {why}")
    if plan.baseline and not interrupted:
        device = str(plan.ranks.device)
        simple_models = {
            "baseline": baseline(plan.splits, plan.settings.class_weights, device),
            "vectors": _vectors_baseline(plan.splits, plan.settings, device),
        }
        for name, simple in simple_models.items():
            if simple is not None:
                extras[name] = simple
                warning = verdict(simple, kept.scores, plan.settings.metric)
                notes += filter(None, (simple["note"], warning))
    return notes, extras


def _vectors_baseline(splits: Splits, settings: RunSettings, device: str) -> dict[str, Any] | None:
    """Scores of a linear layer on the package's vectors; None for pairs, or without files."""
    task, files = task_named(splits.train.task), {"dev": splits.dev, "test": splits.test}
    single = all(len(example.texts) == 1 for example in splits.train.examples[:1])
    if not (task.names_labels and task.head and single) or not any(files.values()):
        return None
    began = time.perf_counter()
    train = replace(sample_of(splits.train, BASELINE_ROWS), known_labels=splits.train.labels)
    try:
        learner = FrozenEncoder(VECTORS, task.name, device=device).fit(train, settings)
    except BertsmithError:  # too few labels, say, which the run itself reports
        return None
    return {
        "name": f"linear layer on vectors of {VECTORS}",
        "short": "vectors",
        "scores": {name: data and learner.evaluate(data).scores for name, data in files.items()},
        "seconds": round(time.perf_counter() - began, 1),
        "note": "",
        "fitted": True,
    }


def _write_interrupted(
    plan: TrainingPlan, runs: Runs, work: PartialFolder, out: Path, replaceable: bool
) -> str:
    """Write the best epoch so far; return a message that says how to continue."""
    resumable = plan.ranks.run_on_first(lambda: work.holds_something)
    again = f"the same command with {RESUME} continues"
    if runs.best is None:
        again = again if resumable else "nothing was written"
        return f"interrupted before the first epoch ended: {again}"
    epoch = f"epoch {runs.best.history.best} of {runs.best.settings.epochs}"
    if out.exists() and any(out.iterdir()) and not replaceable:
        state = f"{out} is as it was before"
    else:
        runs = replace(runs, best=with_model(plan, runs.best, work))
        _write(plan, result_of(plan, runs, interrupted=True), out, replaceable)
        state = f"the best model so far ({epoch}) is in {out}"
    if resumable:
        return f"interrupted: {state}, and {again}"
    return f"interrupted: {state}, but it cannot be continued: nothing else was stored yet"


def _score_notes(plan: TrainingPlan, kept: TrainingRun) -> list[str]:
    notes = [] if kept.dev is None else list(kept.dev.notes)
    if (precision := kept.precision) != (wanted := kept.settings.dtype):
        notes.append(f"this device has no {wanted} units: trained in {precision}")
    if plan.splits.dev is None and kept.dev is None:
        return [*notes, "no dev data: the last epoch was kept and not scored"]
    chosen = ["the epoch"] * (kept.settings.keep == "best" and kept.settings.epochs > 1)
    chosen += ["the seed"] * (plan.seeds > 1)
    chosen += ["the learning rate", "the number of epochs"] if plan.grid else []
    chosen += [name.replace("_", " ") for name in (kept.dev.tuned if kept.dev else {})]
    if chosen and plan.splits.test is None:
        notes.append(
            f"the dev score is optimistic, because it was also used to choose {listed(chosen)}; "
            "give a test file for an unbiased score"
        )
    return notes


def _grid(splits: Splits, settings: RunSettings, trials: TrialSettings) -> tuple[RunSettings, ...]:
    if splits.dev is None:
        raise BertsmithError("a sweep needs a dev file or held-out examples")
    rate, count = settings.learning_rate, settings.epochs
    rates = trials.sweep_rates or (rate / 2, rate, rate * 2)
    counts = trials.sweep_epochs or sorted({max(1, count - 1), count, count + 1})
    pairs = product(rates, counts)
    return tuple(settings.changed(learning_rate=rate, epochs=epochs) for rate, epochs in pairs)
