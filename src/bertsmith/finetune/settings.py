"""What can be said of a fine-tuning run, and what is sensible where nothing is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.tasks.registry import task_named
from bertsmith.train.schedule import SCHEDULES


@dataclass(frozen=True)
class Settings:
    """One run."""

    learning_rate: float = 1e-4  # of a model 768 wide
    optimizer: str = "adamw"  # or "muon" for the matrices in layers
    matrix_learning_rate: float = 0.0  # of those; 0: by the number of steps
    epochs: int = 3
    batch_size: int = 32  # examples, however many windows they have
    seed: int = 0
    warmup: float = 0.1  # share of the steps
    schedule: str = "linear"
    weight_decay: float = 0.01
    clip: float = 1.0  # length that gradients are cut to
    layer_decay: float = 0.8  # each layer learns by this factor slower than the one above it
    freeze: str = "none"  # "embedding", "encoder", or how many of the lower layers
    reinitialise: int = 0  # top layers that forget what they learned
    class_weights: str = ""  # "balanced", or "name=2.5,other=1"
    focal: float = 0.0  # how much more hard examples count (gamma)
    smoothing: float = 0.0  # of labels
    patience: int = 0  # epochs without a better score before training stops; 0: never
    keep: str = "best"  # the best epoch by its score, or the "last"
    metric: str = ""  # the score that decides; else the task's own
    max_length: int = 0  # tokens in a window; 0: as many as the model reads
    dtype: str = "float32"  # or "bfloat16": compute in it, keep float32 weights
    checkpointing: bool = False  # compute states twice instead of keeping them
    temperature: float = 0.05  # of similarities that compete
    budget: int = 0  # tokens that pass through the model at once; 0: by device

    def __post_init__(self) -> None:
        for name, low, high in RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                raise BertsmithError(f"{name} is {value:g}, not from {low:g} to {high:g}")
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                given = getattr(self, name)
                raise BertsmithError(f"unknown {name} {given!r}; known: {', '.join(known)}")
        if self.matrix_learning_rate and self.optimizer != "muon":
            raise BertsmithError("matrix_learning_rate is Muon's: the optimizer is not muon")
        if self.freeze not in ("none", "embedding", "encoder") and not self.freeze.isdecimal():
            raise BertsmithError(
                f"freeze is none, embedding, encoder or a number of layers, not {self.freeze!r}"
            )


MANY = 10**9
RANGES = (
    ("learning_rate", 1e-9, 1.0),
    ("matrix_learning_rate", 0.0, 1.0),
    ("epochs", 1, 10_000),
    ("batch_size", 1, 1_000_000),
    ("seed", 0, MANY),
    ("warmup", 0.0, 0.9),
    ("weight_decay", 0.0, 10.0),
    ("clip", 1e-6, 1e9),
    ("layer_decay", 0.01, 1.0),
    ("reinitialise", 0, 1000),
    ("focal", 0.0, 20.0),
    ("smoothing", 0.0, 0.99),
    ("patience", 0, MANY),
    ("max_length", 0, MANY),
    ("temperature", 1e-4, 100.0),
    ("budget", 0, MANY),
)
CHOICES = {
    "optimizer": ("adamw", "muon"),
    "schedule": tuple(SCHEDULES),
    "keep": ("best", "last"),
    "dtype": ("float32", "bfloat16"),
}

WIDTH = 768  # of the models that the usual rate is known of
MATRIX_RATE, FEW = 0.012, 1600  # Muon's, up to so many steps


def settings_for(task: str, usual: Mapping[str, Any] = {}, /, **given: Any) -> Settings:
    """What is given (and not None), over what is usual for the model, and for the task."""
    known = {one.name for one in fields(Settings)}
    unknown = given.keys() - known
    if unknown:
        raise BertsmithError(f"unknown setting {min(unknown)!r}; known: {', '.join(sorted(known))}")
    said = {name: value for name, value in given.items() if value is not None}
    made = {**task_named(task).defaults, **usual, **said}
    if made.get("optimizer") != "muon" and "matrix_learning_rate" not in said:
        made.pop("matrix_learning_rate", None)  # of a model that is usually changed by Muon
    return replace(Settings(), **made)


def rate_for(width: int) -> float:
    """The usual learning rate, the more the narrower a model is: as ELECTRA's authors have it."""
    return float(f"{Settings.learning_rate * WIDTH / width:.2g}")


def matrix_rate_for(steps: int) -> float:
    """The usual rate of Muon: the less the longer a run is, from FEW steps on."""
    return MATRIX_RATE * min(1.0, (FEW / steps) ** 0.5)


def spoken(settings: Mapping[str, Any]) -> str:
    """Settings in a line of text."""
    return ", ".join(f"{name.replace('_', ' ')} {settings[name]}" for name in sorted(settings))


def check_seeds(seeds: int) -> None:
    """Refuse to train less than once."""
    if seeds < 1:
        raise BertsmithError(f"seeds is how often to train, from 1 up, not {seeds}")
