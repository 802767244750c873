"""Settings of a fine-tuning run, checked by pydantic, and the defaults of each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from bertsmith.errors import BertsmithError, nearest
from bertsmith.files import one_line
from bertsmith.numbers import shown
from bertsmith.tasks.registry import TASKS, task_named
from bertsmith.tasks.training import TASK_OPTIONS

MANY = 10**9


class Settings(BaseModel):
    """Settings of one run. Unknown names, values out of range, infinity and NaN are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)

    learning_rate: float = Field(
        default=1e-4, ge=1e-9, le=1, description="peak learning rate (of a model 768 wide)"
    )
    optimizer: Literal["adamw", "muon"] = Field(
        default="adamw", description="muon: for the matrices of the layers, with AdamW for the rest"
    )
    matrix_learning_rate: float = Field(
        default=0.0, ge=0, le=1, description="learning rate of Muon; 0: by the number of steps"
    )
    epochs: int = Field(default=3, ge=1, le=10_000, description="passes over the training file")
    batch_size: int = Field(
        default=32, ge=1, le=1_000_000, description="examples in a step, of any number of windows"
    )
    seed: int = Field(
        default=0, ge=0, le=MANY, description="of the new head, the order of examples and dropout"
    )
    warmup: float = Field(
        default=0.1, ge=0, le=0.9, description="fraction of the steps with a rising learning rate"
    )
    schedule: Literal["linear", "cosine", "stable", "constant"] = "linear"
    weight_decay: float = Field(default=0.01, ge=0, le=10)
    clip: float = Field(default=1.0, ge=1e-6, le=1e9, description="largest gradient norm")
    dropout: float | None = Field(
        default=None, ge=0, le=0.9, description="of all layers; default: the model's own"
    )
    both_orders: bool = Field(
        default=False,
        description="train on both orders of every pair: for pairs whose order means nothing",
    )
    layer_decay: float = Field(
        default=0.8,
        ge=0.01,
        le=1,
        description="each layer's learning rate as a fraction of that of the layer above it",
    )
    freeze: str = Field(
        default="none",
        description="none, embedding, encoder, or a number: the embedding and as many lower layers",
    )
    head_epochs: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="passes in which only the new head is trained, before the whole model is",
    )
    reinitialise: int = Field(
        default=0, ge=0, le=1000, description="number of top layers that get new weights"
    )
    class_weights: str = Field(
        default="", description='"balanced", or a weight for each label: "name=2.5,other=1"'
    )
    loss: str = Field(default="", description="one of the task's losses; default: its first")
    focal: float = Field(default=0.0, ge=0, le=20, description="gamma of the focal loss; 0: none")
    smoothing: float = Field(default=0.0, ge=0, le=0.99, description="label smoothing")
    patience: int = Field(
        default=0,
        ge=0,
        le=MANY,
        description="stop after so many epochs without a better score; 0: if the file is learned",
    )
    keep: Literal["best", "last"] = Field(
        default="best", description="the epoch that is saved: the best by its score, or the last"
    )
    metric: str = Field(default="", description="the score that decides; default: the task's own")
    max_length: int = Field(
        default=0,
        ge=0,
        le=MANY,
        description="tokens in a window, in training and when used; 0: as the model",
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="bfloat16: compute in it, with float32 weights"
    )
    checkpointing: bool = Field(
        default=False, description="recompute activations in the backward pass to save memory"
    )
    graphs: bool = Field(
        default=True, description="replay steps as CUDA graphs, where an NVIDIA GPU trains"
    )
    temperature: float = Field(
        default=0.05, ge=1e-4, le=100, description="of the similarities of texts that compete"
    )
    budget: int = Field(
        default=0, ge=0, le=MANY, description="tokens in one pass of the model; 0: by device"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        """Take numbers of numpy as those of Python."""
        return value.item() if hasattr(value, "dtype") and hasattr(value, "item") else value

    @field_validator("freeze", mode="before")
    @classmethod
    def _freeze(cls, value: Any) -> Any:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if isinstance(text, str) and text not in ("none", "embedding", "encoder"):
            if not (text.isascii() and text.isdecimal() and len(text) <= 4):
                raise ValueError("should be none, embedding, encoder or a number of layers")
        return text

    def changed(self, **changes: Any) -> Settings:
        """Return the settings with some changed, validated again."""
        return checked({**self.model_dump(), **changes})


WIDTH = 768  # of the models whose learning rate is known
MATRIX_RATE, FEW = 0.012, 1600  # of Muon, up to so many steps


def settings_for(task: str, usual: Mapping[str, Any] = {}, /, **given: Any) -> Settings:
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
        if getattr(settings, name) != Settings.model_fields[name].default:
            tasks = [one.name for one in TASKS.values() if name in one.options]
            raise BertsmithError(f"{name} has no effect on {task}; it is for {_listed(tasks)}")
    return settings


def checked(values: Mapping[str, Any]) -> Settings:
    """Settings of plain values; a bad one is a one-line error."""
    try:
        settings = Settings.model_validate(dict(values))
    except ValidationError as error:
        raise BertsmithError(_complaint(error)) from error
    if settings.matrix_learning_rate and settings.optimizer != "muon":
        raise BertsmithError("matrix_learning_rate is for the optimizer muon, not adamw")
    return settings


def _complaint(error: ValidationError) -> str:
    """The first mistake in a line, with the nearest known name where one is unknown."""
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        near = nearest(name, Settings.model_fields)
        known = "" if near else f"; known: {', '.join(Settings.model_fields)}"
        return one_line(f"unknown setting {name!r}{near}{known}")
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return one_line(f"{name} {message}, not {shown(first['input'])}")


def _listed(names: Sequence[str]) -> str:
    """Names between commas, with "and" before the last."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def rate_for(width: int) -> float:
    """The default learning rate: inverse to the width of the model, as ELECTRA's authors do."""
    return float(f"{Settings().learning_rate * WIDTH / width:.2g}")


def matrix_rate_for(steps: int) -> float:
    """The default learning rate of Muon: lower the longer a run is, from FEW steps on."""
    return MATRIX_RATE * min(1.0, (FEW / steps) ** 0.5)


def spoken(settings: Mapping[str, Any]) -> str:
    """Settings in a line of text."""
    return ", ".join(f"{name.replace('_', ' ')} {settings[name]}" for name in sorted(settings))


def check_seeds(seeds: int) -> None:
    """Refuse to train less than once, or without end."""
    if isinstance(seeds, bool) or not isinstance(seeds, int) or not 1 <= seeds <= 1000:
        raise BertsmithError(f"seeds must be from 1 to 1000, not {shown(seeds)}")
