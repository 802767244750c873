"""Cross-validation: a score on all rows, and a model that is trained on all of them."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from statistics import median
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.finetuning.calibrate import check_guarantee, check_rows, guarantee
from bertsmith.finetuning.plan import TrainingPlan, train_all
from bertsmith.finetuning.result import FinetuningResult, TrainingRun
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import evaluate, labelled, scored
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.splits import Splits, fold_numbers, folds_of, split_off

INNER = 0.1  # of a fold's training rows, which choose the epoch


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

    The score of a fold chooses nothing: its epoch is chosen by a tenth of the other rows. Coverage
    and abstention are fitted on the predictions for all rows, each by a model that did not see it.
    """
    dataset = labelled(plan.splits.train)
    dataset = replace(dataset, known_labels=dataset.labels)
    numbers = _spread(dataset, fold_numbers(dataset, folds, plan.settings.seed))
    runs: list[TrainingRun] = []
    examples, predictions = [], []
    for rest, held in folds_of(dataset, numbers):
        plan.say(f"fold {len(runs) + 1} of {max(numbers) + 1}")
        train, dev, _ = split_off(rest, INNER)
        best = _trained(replace(plan, splits=Splits(train, dev)))
        own = replace(dataset, examples=[dataset.examples[place] for place in held])
        fold = evaluate(best.bert, own)
        examples += own.examples
        predictions += fold.predictions
        runs.append(replace(best.light(), scores={"dev": fold.scores, "test": None}))
    epochs = max(1, round(median(one.history.best for one in runs)))
    settings = plan.settings.changed(epochs=epochs, keep="last", patience=0)
    plan.say(f"all rows, {epochs} epochs")
    kept = _trained(
        replace(plan, splits=Splits(dataset, None, plan.splits.test), settings=settings)
    )
    pooled = scored(kept.bert, replace(dataset, examples=examples), predictions)
    extras = {}
    if plan.calibration is not None and plan.calibration.guaranteed:
        extras["calibration"] = guarantee(kept.bert, pooled, plan.calibration)
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
    return FinetuningResult(
        dataset.task, metric, kept, [kept], folds=runs, notes=notes, extras=extras
    )


def _trained(plan: TrainingPlan) -> TrainingRun:
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
