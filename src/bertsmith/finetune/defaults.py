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
    "dropout",
    "epochs",
    "batch_size",
)


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
