"""Default settings: of a model, those in its bertsmith.json; and by the number of examples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.checkpoint import read_config, read_notes
from bertsmith.errors import BertsmithError
from bertsmith.finetune.settings import Settings, rate_for, settings_for
from bertsmith.finetune.setup import find_encoder

STORABLE = (
    "learning_rate",
    "optimizer",
    "matrix_learning_rate",
    "layer_decay",
    "dropout",
    "epochs",
    "batch_size",
)

LABEL_TASKS = ("classification", "multilabel", "regression")  # of which this was measured:
LEAST_STEPS = 500  # below, more steps are better on held-out data (docs/finetune.md)
# Below so many steps, classifiers of a model whose default is Muon are better with AdamW, at twice
# the learning rate and for so many steps (docs/bertsmith-small-experiments.md), but not for more
# epochs than MOST: of hundreds of examples, LEAST_STEPS are enough.
MUON_STEPS, FACTOR, MOST = 1000, 2, 20
OPTIMIZER = ("optimizer", "learning_rate", "matrix_learning_rate")


def default_settings(model: str | Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The default settings of a model; see `stored_settings`."""
    width = read_config(find_encoder(model)[0]).width
    return {"learning_rate": rate_for(width), **stored_settings(model, given)}


def stored_settings(model: str | Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The table "finetune" of a model's bertsmith.json, without settings that are given."""
    directory = find_encoder(model)[0]
    where = directory / "bertsmith.json"
    defaults = _checked(read_notes(directory).get("finetune", {}), f"{where}: finetune")
    return {name: value for name, value in defaults.items() if given.get(name) is None}


def settings_by_steps(
    settings: Settings,
    task: str,
    examples: int,
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> Settings:
    """Settings for so many examples: few need more epochs, and AdamW instead of Muon.

    Epochs that are given, or that a model names, stay, and so does a given optimizer.
    """
    if task not in LABEL_TASKS or fixes_epochs(given, defaults):
        return settings
    each = max(1, -(-examples // settings.batch_size))  # steps in an epoch
    least = LEAST_STEPS
    if each * settings.epochs < MUON_STEPS and may_leave_muon(settings, task, given):
        least = max(LEAST_STEPS, min(MUON_STEPS, MOST * each))
        rate = FACTOR * settings.learning_rate
        settings = settings.changed(optimizer="adamw", learning_rate=rate, matrix_learning_rate=0.0)
    return settings.changed(epochs=min(10_000, max(settings.epochs, -(-least // each))))


def fixes_epochs(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    """Whether the number of epochs does not depend on the number of examples."""
    return given.get("epochs") is not None or "epochs" in defaults


def may_leave_muon(settings: Settings, task: str, given: Mapping[str, Any]) -> bool:
    """Whether AdamW replaces Muon where there are few steps."""
    chosen = any(given.get(name) is not None for name in OPTIMIZER)
    return settings.optimizer == "muon" and task == "classification" and not chosen


def _checked(named: Any, where: str) -> dict[str, Any]:
    """The settings that a model names, checked."""
    if not isinstance(named, dict):
        raise BertsmithError(f"{where} is not a table of settings")
    for name in named:
        if name not in STORABLE:
            raise BertsmithError(
                f"{where}: a model may not set {name!r}, only {', '.join(STORABLE)}"
            )
    try:
        settings_for("classification", **named)
    except BertsmithError as error:
        raise BertsmithError(f"{where}: {error}") from error
    return dict(named)
