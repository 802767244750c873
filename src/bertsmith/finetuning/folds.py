"""Cross-validation: a score on all rows, and a model that is trained on all of them."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from statistics import median
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.finetuning.calibrate import check_guarantee, check_rows, guarantee
from bertsmith.finetuning.plan import Plan, train_all
from bertsmith.finetuning.result import Result, Run
from bertsmith.settings.finetuning import TrialSettings
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import evaluate, labelled, scored
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.splits import Splits, fold_numbers, split_off

INNER = 0.1  # of a fold's training rows, which choose the epoch


def check_folds(plan: Plan, trials: TrialSettings, resume: bool) -> None:
    """Refuse options that cross-validation has no use for."""
    others = {
        "auto": trials.auto,
        "sweep": trials.sweep,
        "seeds": trials.seeds > 1,
        "calibrate": trials.calibrate,
        "resume": resume,
    }
    for name, given in others.items():
        if given:
            raise BertsmithError(f"folds cannot be combined with {name}")
    if plan.splits.dev is not None:
        raise BertsmithError("folds score the rows of the training file: leave out the dev file")
    task = task_named(plan.splits.train.task)
    check_guarantee(task, trials.abstain, trials.coverage)
    check_rows(plan.splits.train, trials.abstain, trials.coverage)


def across_folds(plan: Plan, folds: int) -> Result:
    """Train and score each fold, then train on all rows for as many epochs as folds took.

    The score of a fold chooses nothing: its epoch is chosen by a tenth of the other rows. What is
    promised of new data (coverage, abstention) is fitted on the predictions for all rows, each by a
    model that did not see it.
    """
    dataset = labelled(plan.splits.train)
    dataset = replace(dataset, known_labels=dataset.labels)
    numbers = _spread(dataset, fold_numbers(dataset, folds, plan.settings.seed))
    say = getattr(plan.watch, "say", lambda line: None)
    runs: list[Run] = []
    held, predictions = [], []
    for fold in sorted(set(numbers) - {-1}):
        say(f"fold {fold + 1} of {max(numbers) + 1}")
        pairs = list(zip(dataset.examples, numbers, strict=True))
        rest = replace(dataset, examples=[one for one, number in pairs if number != fold])
        own = replace(dataset, examples=[one for one, number in pairs if number == fold])
        train, dev, _ = split_off(rest, INNER)
        best = _trained(replace(plan, splits=Splits(train, dev)))
        found = evaluate(best.bert, own)
        held += own.examples
        predictions += found.predictions
        runs.append(replace(best.light(), scores={"dev": found.scores, "test": None}))
    epochs = max(1, round(median(one.history.best for one in runs)))
    settings = plan.settings.changed(epochs=epochs, keep="last", patience=0)
    say(f"all rows, {epochs} epochs")
    kept = _trained(
        replace(plan, splits=Splits(dataset, None, plan.splits.test), settings=settings)
    )
    pooled = scored(kept.bert, replace(dataset, examples=held), predictions)
    extras = {}
    if plan.calibration is not None and (plan.calibration.abstain or plan.calibration.coverage):
        wanted = plan.calibration
        extras["calibration"] = guarantee(kept.bert, pooled, wanted.abstain, wanted.coverage)
    kept = replace(kept, dev=pooled, scores={**kept.scores, "dev": pooled.scores})
    notes = [
        *plan.splits.notes,
        *plan.notes,
        f"dev scores are those of {len(runs)} folds, each by a model of the other rows; the model "
        f"itself was trained on all {len(dataset):,} rows for {epochs} epochs",
    ]
    if alone := numbers.count(-1):
        notes.append(f"{alone:,} rows are in no fold: their labels have no others to learn from")
    metric = plan.settings.metric
    return Result(dataset.task, metric, kept, [kept], folds=runs, notes=notes, extras=extras)


def _trained(plan: Plan) -> Run:
    """The run of a plan."""
    return deque(train_all(replace(plan, calibration=None)), maxlen=1).pop().kept


def _spread(dataset: Dataset[Any], numbers: list[int]) -> list[int]:
    """The same folds, but rows that have all examples of a label are in none (-1)."""
    owners: dict[str, set[int]] = {}
    for one, number in zip(dataset.examples, numbers, strict=True):
        for name in one.label_names:
            owners.setdefault(name, set()).add(number)
    alone = {name for name, several in owners.items() if len(several) == 1}
    return [
        -1 if alone.intersection(one.label_names) else number
        for one, number in zip(dataset.examples, numbers, strict=True)
    ]
