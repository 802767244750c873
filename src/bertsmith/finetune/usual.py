"""Default settings of a model: those in its bertsmith.json, else a rate for its width."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.checkpoint import read_config, read_notes
from bertsmith.errors import BertsmithError
from bertsmith.finetune.opening import find_encoder
from bertsmith.finetune.settings import rate_for, settings_for

NAMED = (
    "learning_rate",
    "optimizer",
    "matrix_learning_rate",
    "layer_decay",
    "epochs",
    "batch_size",
)


def usual_for(model: str | Path, given: Mapping[str, Any], benchmark: str = "") -> dict[str, Any]:
    """The default settings of a model; see `named_by`."""
    width = read_config(find_encoder(model)[0]).width
    return {"learning_rate": rate_for(width), **named_by(model, given, benchmark)}


def named_by(model: str | Path, given: Mapping[str, Any], benchmark: str = "") -> dict[str, Any]:
    """The settings in a model's bertsmith.json, without those that are given.

    The table "finetune" holds its defaults. The table "benchmarks" holds settings for single
    benchmark tasks: all of a task's apply, or none where some of them are given.
    """
    directory = find_encoder(model)[0]
    notes, where = read_notes(directory), directory / "bertsmith.json"
    usual = _checked(notes.get("finetune", {}), {}, f"{where}: finetune")
    tables = notes.get("benchmarks", {})
    if not isinstance(tables, dict):
        raise BertsmithError(f"{where}: benchmarks is not a table of tasks")
    own = {
        task: _checked(table, usual, f"{where}: benchmarks: {task}")
        for task, table in tables.items()
    }.get(benchmark, {})
    said = {name for name, value in given.items() if value is not None}
    chosen = usual if said & own.keys() else usual | own
    return {name: value for name, value in chosen.items() if name not in said}


def _checked(named: Any, usual: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The settings that a model names, checked."""
    if not isinstance(named, dict):
        raise BertsmithError(f"{where} is not a table of settings")
    for name in named:
        if name not in NAMED:
            raise BertsmithError(f"{where}: a model may not set {name!r}, only {', '.join(NAMED)}")
    try:
        settings_for("classification", usual, **named)
    except BertsmithError as error:
        raise BertsmithError(f"{where}: {error}") from error
    return dict(named)
