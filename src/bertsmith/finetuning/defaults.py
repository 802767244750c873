"""The settings of a run: given, of the model's bertsmith.json, or by the number of examples."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertsmith.checkpoint import read_config, read_notes
from bertsmith.errors import BertsmithError
from bertsmith.finetuning.settings import RunSettings, checked, rate_for, settings_for, spoken
from bertsmith.finetuning.setup import find_encoder
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.splits import Splits
from bertsmith.tasks.task import Task

STORABLE = (
    *("learning_rate", "optimizer", "matrix_learning_rate", "layer_decay", "dropout"),
    *("epochs", "batch_size"),
)

LEAST_STEPS = 500  # below, more steps are better on held-out data (docs/finetune.md)
# Below so many steps, classifiers of a model whose default is Muon are better with AdamW, at twice
# the learning rate and for so many steps (docs/bertsmith-small-experiments.md), but not for more
# epochs than MOST: of hundreds of examples, LEAST_STEPS are enough.
MUON_STEPS, FACTOR, MOST = 1000, 2, 20
PARTIAL = 10  # times the learning rate where few parameters are trained
NOTED = ("epochs", "optimizer", "learning_rate")
SWEPT = ("epochs", "learning_rate")  # of which a sweep tries several


def chosen_settings(
    model: str | Path,
    splits: Splits,
    given: Mapping[str, Any],
    *,
    examples: int | None = None,
    swept: Collection[str] = (),
    own: bool = True,
) -> tuple[RunSettings, list[str]]:
    """The settings of a run, and notes on those that the data or the model decided.

    `examples` are those that are learned from, by default the labelled ones. Settings that are
    `swept` have no notes. Without `own`, the model's bertsmith.json is not read.
    """
    defaults = default_settings(model, given, own)
    if given.get("trained") in ("lora", "biases"):  # what suits full training does not suit these
        rate = default_settings(model, {}, own=False)["learning_rate"]
        defaults = {"learning_rate": PARTIAL * rate, "layer_decay": 1.0}
    usual = with_metric(splits, settings_for(splits.train.task, defaults, **given))
    count = len(learned_from(splits.train, usual)) if examples is None else examples
    settings = settings_by_steps(usual, splits.train.task, count, given, defaults)
    final = settings.model_dump(include=set(STORABLE) - set(swept))
    few = {n: final[n] for n in NOTED if n in final and final[n] != getattr(usual, n)}
    stored = (stored_settings(model, given) if own else {}).items()
    reasons = {
        "because of few examples": few,
        "settings in the model's bertsmith.json": {n: v for n, v in stored if final.get(n) == v},
    }
    return settings, [f"{why}: {spoken(values)}" for why, values in reasons.items() if values]


def learned_from(train: Dataset[Any], settings: RunSettings) -> list[Any]:
    """The labelled examples of a training file; with `both_orders`, every pair twice."""
    examples = train.gold()
    if not settings.both_orders:
        return examples
    if any(example.pair is None for example in examples):
        raise BertsmithError(f"{train.path}: both_orders needs pairs of texts")
    return examples + [replace(row, text=row.pair, pair=row.text) for row in examples]


def with_metric(splits: Splits, settings: RunSettings) -> RunSettings:
    """The settings with the score that selects the best epoch; it must be one of the task's."""
    known = task_named(splits.train.task).metrics(splits.train)
    metric = settings.metric or known[0]
    if metric not in known:
        raise BertsmithError(f"cannot select by {metric!r}; known: {', '.join(known)}")
    return settings.changed(metric=metric)


def default_settings(
    model: str | Path, given: Mapping[str, Any], own: bool = True
) -> dict[str, Any]:
    """The default settings of a model; see `stored_settings`."""
    rate = {"learning_rate": rate_for(read_config(find_encoder(model)[0]).width)}
    return rate | stored_settings(model, given) if own else rate


def stored_settings(model: str | Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The table "finetune" of a model's bertsmith.json, without settings that are given."""
    directory = find_encoder(model)[0]
    where = directory / "bertsmith.json"
    defaults = _checked(read_notes(directory).get("finetune", {}), f"{where}: finetune")
    return {name: value for name, value in defaults.items() if given.get(name) is None}


def settings_by_steps(
    settings: RunSettings,
    task: str,
    examples: int,
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> RunSettings:
    """Settings for so many examples: few need more epochs, and AdamW instead of Muon.

    Epochs that are given, or that a model names, stay, and so do a given optimizer and rate.
    """
    kind = task_named(task)
    if not kind.epochs_for_few:
        return settings
    each = max(1, -(-examples // settings.batch_size))  # steps in an epoch
    least = LEAST_STEPS
    if each * settings.epochs < MUON_STEPS and may_leave_muon(settings, kind, given):
        least = max(LEAST_STEPS, min(MUON_STEPS, MOST * each))
        rate = settings.learning_rate * (FACTOR if given.get("learning_rate") is None else 1)
        settings = settings.changed(optimizer="adamw", learning_rate=rate, matrix_learning_rate=0.0)
    if fixes_epochs(given, defaults):
        return settings
    return settings.changed(epochs=min(10_000, max(settings.epochs, -(-least // each))))


def fixes_epochs(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    """Whether the number of epochs does not depend on the number of examples."""
    return given.get("epochs") is not None or "epochs" in defaults


def may_leave_muon(settings: RunSettings, task: Task, given: Mapping[str, Any]) -> bool:
    """Whether AdamW replaces Muon where there are few steps."""
    chosen = any(given.get(name) is not None for name in ("optimizer", "matrix_learning_rate"))
    return settings.optimizer == "muon" and task.adamw_for_few and not chosen


def _checked(settings: Any, where: str) -> dict[str, Any]:
    if not isinstance(settings, dict):
        raise BertsmithError(f"{where} is not a table of settings")
    for name in settings:
        if name not in STORABLE:
            raise BertsmithError(
                f"{where}: a model may not set {name!r}, only {', '.join(STORABLE)}"
            )
    try:
        checked({name: value for name, value in settings.items() if value is not None})
    except BertsmithError as error:
        raise BertsmithError(f"{where}: {error.message}") from error
    return dict(settings)
