"""`finetune`: labelled data → a model directory with a report."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from bertsmith.checkpoint import built_in
from bertsmith.errors import BertsmithError
from bertsmith.finetuning.calibrate import check_calibration
from bertsmith.finetuning.defaults import SWEPT, chosen_settings
from bertsmith.finetuning.history import Watcher
from bertsmith.finetuning.plan import Plan, Runs, Stopped, train_all, with_model
from bertsmith.finetuning.result import Result, Run, described, write_result
from bertsmith.finetuning.settings import Settings, check_seeds
from bertsmith.finetuning.setup import open_fresh
from bertsmith.finetuning.trials import model_sum
from bertsmith.finetuning.tuning import UNCHANGED
from bertsmith.finetuning.work import (
    Interrupted,
    Work,
    check_out,
    data_sum,
    is_interrupted,
    terminable,
)
from bertsmith.folders import reserved
from bertsmith.infer.loaded import pick_device
from bertsmith.reports.baseline import baseline, verdict
from bertsmith.settings import picked, taking
from bertsmith.settings.finetuning import FinetuningSettings, TrialSettings
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.splits import Splits, read_splits
from bertsmith.tasks.training import LEARNED
from bertsmith.train.distributed import Ranks


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
    device: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    own_settings: bool = True,
    watch: Watcher | None = None,
    progress: bool | None = None,
    **given: Any,
) -> Result:
    """Fine-tune a model on a file (or a folder with train, dev and test files).

    The task is guessed unless given; `header`, `encoding` and `format` say how files are read, as
    in `open_data`; further arguments are those of `Settings`. With `out`, the best model of all
    runs is written there with its report. An interrupted command keeps its state in the folder
    `out`.partial, from which `resume` continues to the same result. `calibrate` fits temperature
    and thresholds on the dev data; `abstain` (0.95) a confidence below which the model abstains, so
    that the accuracy of the rest is at least this. `own_settings=False` ignores the settings in the
    model's bertsmith.json. `progress` shows a bar, by default on a terminal or in a notebook.
    """
    if out is not None:
        check_out(out, overwrite, resume)
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
            hold_out=hold_out,
        )
    splits = _one_scheme(splits)
    settings, reasons = chosen_settings(
        model, splits, given, swept=SWEPT if trials.sweep else (), own=own_settings
    )
    grid = _grid(splits, settings, trials) if trials.sweep else ()
    calibration = (trials.calibrate, trials.abstain)
    if calibrated := calibration != (False, None):
        check_calibration(splits.train.task, splits.dev, trials.abstain)
    plan = Plan(
        model,
        splits,
        settings,
        learn=lambda train, one: task_named(train.task).training(train, one),
        open=lambda training, one: open_fresh(model, training, one, ranks.device),
        ranks=ranks,
        seeds=trials.seeds,
        grid=grid,
        watch=watch,
        progress=progress,
        calibration=calibration if calibrated else None,
        baseline=out is not None,
        notes=tuple(reasons),
    )
    return carry_out(plan, None if out is None else Path(out), overwrite, resume)


def demand_data(data: Any) -> None:
    """Refuse the name of a built-in model where data is expected."""
    if isinstance(data, str | Path) and str(data) in built_in() and not Path(data).exists():
        raise BertsmithError(f"{data} is a model: name the model first, then the data")


def carry_out(plan: Plan, out: Path | None, overwrite: bool, resume: bool) -> Result:
    """Train all runs of a plan, and write the best model if there is a place for it.

    With several processes, each returns the result, and the first writes it.
    """
    with plan.ranks.process_group(), ExitStack() as stack:
        if out is None:
            return result_of(plan, deque(train_all(plan), maxlen=1).pop())
        stack.enter_context(terminable())
        plan.ranks.run_on_first(lambda: stack.enter_context(reserved(out)))
        return _written(plan, out, overwrite, resume)


def _written(plan: Plan, out: Path, overwrite: bool, resume: bool) -> Result:
    """Train, and write the best model; after Ctrl-C, the best epoch so far."""
    ranks, runs, work = plan.ranks, Runs(), Work.of(out)
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
        kept = _keep(plan, runs, work, out, replaceable if is_interrupted(out) else False)
        raise Interrupted(kept) from None
    finally:
        if ranks.first and not work.holds_something:
            work.store.remove()
    ranks.run_on_first(work.store.remove)
    return result


def _write(plan: Plan, result: Result, out: Path, replaceable: bool) -> Result:
    plan.ranks.run_on_first(lambda: write_result(result, out, replaceable))
    return replace(result, out=out)


def _description(plan: Plan) -> dict[str, Any]:
    """What must be the same when an interrupted command is resumed."""
    return {
        "model": model_sum(plan.model),
        "data": data_sum(plan.splits),
        "settings": plan.settings.model_dump(),
        "command": {
            "seeds": plan.seeds,
            "sweep": [[one.learning_rate, one.epochs] for one in plan.grid],
            "calibration": list(plan.calibration or ()),
            **plan.same,
        },
    }


def result_of(plan: Plan, runs: Runs, interrupted: bool = False) -> Result:
    """The result of the runs so far."""
    kept = runs.kept
    kept.bert.ranks = None  # from here on each process is for itself
    notes, extras = plan.ranks.run_on_first(lambda: _told(plan, runs, interrupted))
    seeds, sweep = (  # the best as it is now, with its model
        [kept if one.settings == kept.settings else one for one in some]
        for some in (runs.seeds, runs.sweep)
    )
    task, metric = plan.splits.train.task, plan.settings.metric
    result = Result(task, metric, kept, seeds, sweep, notes, extras=extras)
    content = described(result, plan.splits, plan.model, interrupted)
    return replace(result, content=content)


def _told(plan: Plan, runs: Runs, interrupted: bool) -> tuple[list[str], dict[str, Any]]:
    """Notes on the result, and what it is compared with."""
    kept = runs.kept
    notes = [*plan.splits.notes, *_notes(plan, kept), *plan.notes]
    extras: dict[str, Any] = {}
    if plan.compared is not None:
        extras["distillation"] = plan.compared(kept)
    if runs.calibration is not None:
        extras["calibration"] = runs.calibration
        notes.append(f"calibration: {runs.calibration['note']}")
    done, planned = kept.history.done, kept.settings.epochs
    if interrupted:
        notes.append(f"interrupted after {done} of {planned} epochs")
    elif done < planned:
        notes.append(f"stopped after {done} of {planned} epochs: {_why(kept.settings)}")
    if plan.baseline and not interrupted:
        device = str(plan.ranks.device)
        simple = baseline(plan.splits, plan.settings.class_weights, device)
        if simple is not None:
            extras["baseline"] = simple
            notes += filter(
                None, (simple["note"], verdict(simple, kept.scores, plan.settings.metric))
            )
    return notes, extras


def _keep(plan: Plan, runs: Runs, work: Work, out: Path, replaceable: bool) -> str:
    """Write the best epoch so far, and say how to go on."""
    more = plan.ranks.run_on_first(lambda: work.holds_something)
    if runs.best is None:
        kept = "the same command with --resume continues" if more else "nothing was written"
        return f"interrupted before the first epoch ended: {kept}"
    epoch = f"epoch {runs.best.history.best} of {runs.best.settings.epochs}"
    if out.exists() and any(out.iterdir()) and not replaceable:
        kept = f"{out} is as it was before"
    else:
        runs = replace(runs, best=with_model(plan, runs.best, work))
        _write(plan, result_of(plan, runs, interrupted=True), out, replaceable)
        kept = f"the best model so far ({epoch}) is in {out}"
    again = "and the same command with --resume continues"
    if not more:
        again = "but it cannot be continued: nothing else was stored yet"
    return f"interrupted: {kept}, {again}"


def _notes(plan: Plan, kept: Run) -> list[str]:
    """Notes on how to read the scores."""
    notes = [] if kept.dev is None else list(kept.dev.notes)
    if plan.splits.dev is None:
        return [*notes, "no dev data: the last epoch was kept and not scored"]
    chosen = [
        *(["the epoch"] if kept.settings.keep == "best" and kept.settings.epochs > 1 else []),
        *(["the seed"] if plan.seeds > 1 else []),
        *(["the learning rate", "the number of epochs"] if plan.grid else []),
        *(name.replace("_", " ") for name in (kept.dev.tuned if kept.dev else {})),
    ]
    if chosen and plan.splits.test is None:
        what = " and ".join([", ".join(chosen[:-1]), chosen[-1]] if chosen[1:] else chosen)
        notes.append(
            f"the dev score is optimistic, because it was also used to choose {what}; "
            "use --test FILE for an unbiased score"
        )
    return notes


def _why(settings: Settings) -> str:
    """Why a run ended before its last epoch."""
    if settings.patience:
        return f"no better dev score in {settings.patience} epochs"
    return (
        f"the training loss was below {LEARNED} and the last {UNCHANGED} dev scores were no better"
        " (--keep last trains on)"
    )


def _one_scheme(splits: Splits) -> Splits:
    """Tags of all files are read as in the training file: one with only O tags has no scheme."""
    scheme = splits.train.scheme
    others = (
        replace(one, scheme=scheme) if one is not None and one.scheme is None else one
        for one in (splits.dev, splits.test)
    )
    dev, test = others
    return replace(splits, dev=dev, test=test) if scheme else splits


def _grid(splits: Splits, settings: Settings, trials: TrialSettings) -> tuple[Settings, ...]:
    """The settings of a sweep: learning rates × epochs."""
    if splits.dev is None:
        raise BertsmithError("a sweep needs a dev file or held-out examples")
    rate, count = settings.learning_rate, settings.epochs
    pairs = product(
        trials.sweep_rates or (rate / 2, rate, rate * 2),
        trials.sweep_epochs or sorted({max(1, count - 1), count, count + 1}),
    )
    return tuple(settings.changed(learning_rate=one, epochs=number) for one, number in pairs)
