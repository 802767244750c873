"""What suits a model: settings that its own bertsmith.json names, else a rate for its width."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.checkpoint import read_config, read_notes
from bertsmith.errors import BertsmithError
from bertsmith.finetune.opening import find_encoder
from bertsmith.finetune.settings import rate_for, settings_for

KINDS: dict[str, Any] = {
    "learning_rate": int | float,
    "optimizer": str,
    "matrix_learning_rate": int | float,
    "layer_decay": int | float,
    "epochs": int,
    "batch_size": int,
}


def usual_for(model: str | Path, given: Mapping[str, Any], benchmark: str = "") -> dict[str, Any]:
    """The settings of a model where nothing else is given; see `named_by`."""
    width = read_config(find_encoder(model)[0]).width
    return {"learning_rate": rate_for(width), **named_by(model, given, benchmark)}


def named_by(model: str | Path, given: Mapping[str, Any], benchmark: str = "") -> dict[str, Any]:
    """The settings that a model's bertsmith.json names, but for those that are given.

    Its table "finetune" is what is usual. In "benchmarks" stands under the name of a task what it
    is to be measured with: that holds as a whole, and so not at all where some of it is given.
    """
    directory = find_encoder(model)[0]
    notes, where = read_notes(directory), directory / "bertsmith.json"
    usual = _checked(notes.get("finetune", {}), {}, f"{where}: finetune")
    tables = notes.get("benchmarks", {})
    if not isinstance(tables, dict):
        raise BertsmithError(f"{where}: benchmarks is no table of tasks")
    own = {
        task: _checked(table, usual, f"{where}: benchmarks: {task}")
        for task, table in tables.items()
    }.get(benchmark, {})
    said = {name for name, value in given.items() if value is not None}
    chosen = usual if said & own.keys() else usual | own
    return {name: value for name, value in chosen.items() if name not in said}


def _checked(named: Any, usual: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Settings that a model names, if they can be such."""
    if not isinstance(named, dict):
        raise BertsmithError(f"{where} is no table of settings")
    for name, value in named.items():
        if name not in KINDS:
            known = ", ".join(KINDS)
            raise BertsmithError(f"{where}: no model can name {name!r}, only {known}")
        if not isinstance(value, KINDS[name]) or isinstance(value, bool):
            raise BertsmithError(f"{where}: {name} cannot be {value!r}")
    try:
        settings_for("classification", usual, **named)
    except BertsmithError as error:
        raise BertsmithError(f"{where}: {error}") from error
    return dict(named)
