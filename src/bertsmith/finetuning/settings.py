"""Settings of a fine-tuning run, checked by pydantic, and the defaults of each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from bertsmith.errors import BertsmithError, nearest, setting_name
from bertsmith.files import one_line
from bertsmith.numbers import shown
from bertsmith.settings import name_of
from bertsmith.settings.finetuning import FinetuningSettings
from bertsmith.tasks.registry import TASKS, task_named
from bertsmith.tasks.training import TASK_OPTIONS
from bertsmith.train.recipe import freezable


class RunSettings(FinetuningSettings, BaseModel):
    """Settings of one run. Unknown names, values out of range, infinity and NaN are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        return value.item() if hasattr(value, "dtype") and hasattr(value, "item") else value

    @field_validator("freeze", mode="before")
    @classmethod
    def _freeze(cls, value: Any) -> Any:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        return freezable(text) if isinstance(text, str) else text

    def changed(self, **changes: Any) -> RunSettings:
        """Return the settings with some changed, validated again."""
        return checked({**self.model_dump(), **changes})


WIDTH = 768  # of the models whose learning rate is known
MATRIX_RATE, FEW = 0.012, 1600  # of Muon, up to so many steps


def settings_for(task: str, usual: Mapping[str, Any] = {}, /, **given: Any) -> RunSettings:
    """Return the given settings (if not None), else the model's defaults, else the task's."""
    chosen = {name: value for name, value in given.items() if value is not None}
    kind = task_named(task)
    values = {**kind.defaults, **usual, **chosen}
    if values.get("optimizer") != "muon" and "matrix_learning_rate" not in chosen:
        values.pop("matrix_learning_rate", None)  # of a model whose default is Muon
    settings, losses = checked(values), kind.losses
    if settings.loss not in ("", *losses):
        known = f"; known: {', '.join(losses)}" if losses else ""
        raise BertsmithError(f"{task} has no loss {settings.loss[:60]!r}{known}")
    for name in set(TASK_OPTIONS) - kind.options:
        if getattr(settings, name) != RunSettings.model_fields[name].default:
            tasks = [other.name for other in TASKS.values() if name in other.options]
            option = name_of(FinetuningSettings, name)
            raise BertsmithError(f"{option} has no effect on {task}; it is for {listed(tasks)}")
    return settings


def checked(values: Mapping[str, Any]) -> RunSettings:
    """Settings of plain values; a bad one is a one-line error."""
    try:
        settings = RunSettings.model_validate(dict(values))
    except ValidationError as error:
        raise _complaint(error) from error
    if settings.trained != "all" and (settings.freeze != "none" or settings.reinitialise):
        name = setting_name("freeze" if settings.freeze != "none" else "reinitialise")
        raise BertsmithError(f"{name} is for training all parameters, not {settings.trained}")
    if settings.matrix_learning_rate and settings.optimizer != "muon":
        name = setting_name("matrix_learning_rate")
        raise BertsmithError(f"{name} is for the optimizer muon, not adamw")
    return settings


def _complaint(error: ValidationError) -> BertsmithError:
    first = min(error.errors(), key=lambda mistake: mistake["type"] != "extra_forbidden")
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        near = nearest(name, RunSettings.model_fields)
        known = "" if near else f"; known: {', '.join(RunSettings.model_fields)}"
        return BertsmithError(one_line(f"unknown setting {name!r}{near}{known}"))
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    mistake = one_line(f"{message}, not {shown(first['input'])}")
    return BertsmithError(f"{name_of(FinetuningSettings, name)} {mistake}")


def listed(names: Sequence[str]) -> str:
    """Names between commas, with "and" before the last."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def rate_for(width: int) -> float:
    """The default learning rate: inverse to the width of the model, as ELECTRA's authors do."""
    return float(f"{RunSettings().learning_rate * WIDTH / width:.2g}")


def matrix_rate_for(steps: int) -> float:
    """The default learning rate of Muon: lower the longer a run is, from FEW steps on."""
    return MATRIX_RATE * min(1.0, (FEW / steps) ** 0.5)


def spoken(settings: Mapping[str, Any]) -> str:
    """Settings in a line of text."""
    return ", ".join(f"{name.replace('_', ' ')} {settings[name]}" for name in sorted(settings))


def check_seeds(seeds: int) -> None:
    """Refuse to train less than once, or without end."""
    if isinstance(seeds, bool) or not isinstance(seeds, int) or not 1 <= seeds <= 1000:
        raise BertsmithError(f"{setting_name('seeds')} must be from 1 to 1000, not {shown(seeds)}")
