"""Default settings of a model: those in its bertsmith.json, else a rate for its width."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.checkpoint import read_config, read_notes
from bertsmith.errors import BertsmithError
from bertsmith.finetune.settings import rate_for, settings_for
from bertsmith.finetune.setup import find_encoder

STORABLE = (
    "learning_rate",
    "optimizer",
    "matrix_learning_rate",
    "layer_decay",
    "epochs",
    "batch_size",
)


def default_settings(
    model: str | Path, given: Mapping[str, Any], benchmark: str = ""
) -> dict[str, Any]:
    """The default settings of a model; see `stored_settings`."""
    width = read_config(find_encoder(model)[0]).width
    return {"learning_rate": rate_for(width), **stored_settings(model, given, benchmark)}


def stored_settings(
    model: str | Path, given: Mapping[str, Any], benchmark: str = ""
) -> dict[str, Any]:
    """The settings in a model's bertsmith.json, without those that are given.

    The table "finetune" holds its defaults. The table "benchmarks" holds settings for single
    benchmark tasks: all of a task's apply, or none where some of them are given.
    """
    directory = find_encoder(model)[0]
    notes, where = read_notes(directory), directory / "bertsmith.json"
    defaults = _checked(notes.get("finetune", {}), {}, f"{where}: finetune")
    tables = notes.get("benchmarks", {})
    if not isinstance(tables, dict):
        raise BertsmithError(f"{where}: benchmarks is not a table of tasks")
    for_task = {
        task: _checked(table, defaults, f"{where}: benchmarks: {task}")
        for task, table in tables.items()
    }.get(benchmark, {})
    chosen_by_user = {name for name, value in given.items() if value is not None}
    chosen = defaults if chosen_by_user & for_task.keys() else defaults | for_task
    return {name: value for name, value in chosen.items() if name not in chosen_by_user}


def _checked(named: Any, defaults: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The settings that a model names, checked."""
    if not isinstance(named, dict):
        raise BertsmithError(f"{where} is not a table of settings")
    for name in named:
        if name not in STORABLE:
            raise BertsmithError(
                f"{where}: a model may not set {name!r}, only {', '.join(STORABLE)}"
            )
    try:
        settings_for("classification", defaults, **named)
    except BertsmithError as error:
        raise BertsmithError(f"{where}: {error}") from error
    return dict(named)
