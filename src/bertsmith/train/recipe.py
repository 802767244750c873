"""Recipes: runs as TOML files, checked key by key."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bertsmith.errors import BertsmithError


class Part(BaseModel):
    """A table of a recipe; a key it does not know is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelPart(Part):
    """What is trained."""

    size: str = Field(
        default="bert-tiny", description="a published size, as `bertsmith.presets()` lists"
    )
    settings: dict[str, Any] = Field(
        default_factory=dict, description="keys of config.json that differ from it"
    )
    start: str = Field(
        default="", description="a model directory to go on from, instead of new weights"
    )


class DataPart(Part):
    """What it reads."""

    corpus: str = Field(default="", description="a folder that `bertsmith prepare` made")
    format: Literal["spans", "joined", "next", "order"] = Field(
        default="spans", description="spans of documents, joined documents, or pairs of sentences"
    )
    length: int = Field(default=128, ge=8, description="the most tokens in a sequence")
    short: float = Field(
        default=0.1, ge=0, le=1, description="share of pairs cut to a random length"
    )
    workers: int = Field(default=2, ge=1, description="threads that make batches")


class MaskingPart(Part):
    """What is hidden."""

    rate: float = Field(default=0.15, gt=0, lt=1, description="share of tokens to guess")
    mask: float = Field(
        default=0.8, ge=0, le=1, description="share of those shown as the mask token"
    )
    random: float = Field(
        default=0.1, ge=0, le=1, description="share of those shown as a random token"
    )
    unit: Literal["token", "word", "span"] = "token"
    span: float = Field(default=5.0, ge=1, description="words in a span, about")
    longest_span: int = Field(default=10, ge=1)


class GeneratorPart(Part):
    """The generator of replaced tokens, as shares of the model."""

    width: float = Field(default=0.25, gt=0, le=1)
    depth: float = Field(default=1.0, gt=0, le=1)
    sharing: Literal["shared", "disentangled", "none"] = "shared"
    fills: float = Field(
        default=1.0, gt=0, le=1, description="share of hidden tokens; masked_lm guesses the others"
    )


class Stage(Part):
    """A stretch of the run with sequences of another length."""

    length: int = Field(ge=8)
    steps: int = Field(default=0, ge=0, description="how many; 0 for all that are left")
    batch_tokens: int = Field(default=0, ge=0, description="tokens in a step; 0: as train says")


class TrainPart(Part):
    """How it is trained."""

    seed: int = 0
    steps: int = Field(
        default=0, ge=0, description="optimizer steps; 0: as many as `minutes` allow"
    )
    minutes: float = Field(default=0.0, ge=0, description="a budget by the clock instead of steps")
    batch_tokens: int = Field(default=16384, ge=8, description="tokens in a step, over all devices")
    micro_tokens: int = Field(default=16384, ge=8, description="tokens in one pass of one device")
    ramp_from: int = Field(
        default=0, ge=0, description="batch_tokens of the first step; 0 for no ramp"
    )
    ramp_steps: int = Field(default=0, ge=0, description="steps over which the batch grows")
    optimizer: Literal["adamw", "lamb", "stable_adamw", "muon"] = "adamw"
    learning_rate: float = Field(default=1e-4, gt=0)
    matrix_learning_rate: float = Field(default=0.02, gt=0, description="of matrices, with muon")
    weight_decay: float = Field(default=0.01, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = Field(default=1e-6, gt=0)
    schedule: Literal["linear", "cosine", "stable", "constant"] = "linear"
    warmup: float = Field(
        default=0.01, ge=0, description="share of the run, or steps where 1 or more"
    )
    decay: float = Field(
        default=0.2, ge=0, le=1, description="share of the run, for schedule = stable"
    )
    clip: float = Field(default=1.0, gt=0, description="the largest norm of gradients")
    spike: float = Field(
        default=20.0, gt=1, description="skip a step this many times the usual norm"
    )
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False
    ema: float = Field(default=0.0, ge=0, lt=1, description="decay of averaged weights; 0 for none")
    parallel: Literal["ddp", "fsdp"] = "ddp"
    device: str = Field(default="", description="cpu or cuda; a GPU if there is one")
    threads: int = Field(
        default=0, ge=0, description="CPU threads; 0: all, and one for the smallest"
    )


class EvaluatePart(Part):
    """How it is watched."""

    every: int = Field(default=0, ge=0, description="steps between evaluations; 0: only at the end")
    tokens: int = Field(default=65536, ge=0, description="held-out tokens to evaluate on")
    pseudo: int = Field(
        default=16, ge=0, description="held-out sequences for pseudo-perplexity, at the end"
    )


class CheckpointPart(Part):
    """How it is kept."""

    every: int = Field(
        default=500, ge=0, description="steps between checkpoints; 0: only at the end"
    )
    minutes: float = Field(default=0.0, ge=0, description="also so many minutes after the last one")
    keep: int = Field(default=2, ge=1, description="how many of the last are kept")


class Recipe(Part):
    """A whole run."""

    about: str = ""
    model: ModelPart = Field(default_factory=ModelPart)
    data: DataPart = Field(default_factory=DataPart)
    masking: MaskingPart = Field(default_factory=MaskingPart)
    objectives: dict[str, float] = Field(default={"masked_lm": 1.0}, min_length=1)
    generator: GeneratorPart = Field(default_factory=GeneratorPart)
    stages: tuple[Stage, ...] = ()
    train: TrainPart = Field(default_factory=TrainPart)
    evaluate: EvaluatePart = Field(default_factory=EvaluatePart)
    checkpoint: CheckpointPart = Field(default_factory=CheckpointPart)

    def lengths(self) -> list[tuple[int, int, int]]:
        """The stages of the run: (length, tokens in a step, steps; 0 for all that are left)."""
        train = self.train
        if not self.stages:
            return [(self.data.length, train.batch_tokens, 0)]
        return [
            (one.length, one.batch_tokens or train.batch_tokens, one.steps) for one in self.stages
        ]

    def toml(self) -> str:
        """The whole recipe, every key spelled out."""
        lines: list[str] = []
        values = {name: value for name, value in self.model_dump().items() if value != ()}
        # Plain keys come first: below a table's heading they would be the table's.
        for name, value in sorted(values.items(), key=lambda item: not isinstance(item[1], str)):
            _write(lines, name, value)
        return "\n".join(lines).strip() + "\n"


def load_recipe(source: str | Path, changes: Iterable[str] = ()) -> Recipe:
    """Read a recipe: a file, or the name of one that comes with bertsmith.

    `changes` are like "train.learning_rate=1e-3"; the value is TOML, or else a plain string.
    """
    path = Path(source)
    if path.is_file():
        text = _read(path)
    elif str(source) in recipe_names():
        text = (files("bertsmith.recipes") / f"{source}.toml").read_text("utf-8")
    else:
        near = nearest(str(source), recipe_names())
        raise BertsmithError(
            f"{source}: no such recipe file, and none comes by that name{near};"
            " bertsmith recipes lists them"
        )
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BertsmithError(f"{source}: not TOML ({error})") from error
    for change in changes:
        _apply(given, change)
    return checked(given, str(source))


def checked(given: Mapping[str, Any], where: str) -> Recipe:
    """A recipe of plain values; what is wrong with them is one line."""
    try:
        recipe = Recipe.model_validate(given)
    except ValidationError as error:
        raise BertsmithError(f"{where}: {_complaint(error)}") from error
    _check(recipe, where)
    return recipe


def recipe_names() -> list[str]:
    """The recipes that come with bertsmith."""
    found = (item.name for item in files("bertsmith.recipes").iterdir())
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))


def _check(recipe: Recipe, where: str) -> None:
    """What no single key can know."""
    train, stages = recipe.train, recipe.stages
    if bool(train.steps) == bool(train.minutes):
        said = f"train.steps is {train.steps} and train.minutes {train.minutes:g}"
        raise BertsmithError(f"{where}: {said}: one of the two must be 0, and not both")
    if any(stage.steps == 0 for stage in stages[:-1]):
        raise BertsmithError(f"{where}: only the last of the stages may leave out its steps")
    if recipe.masking.mask + recipe.masking.random > 1:
        raise BertsmithError(f"{where}: masking.mask and masking.random are more than all")
    needed = {"next_sentence": "next", "sentence_order": "order"}
    for name, form in needed.items():
        if name in recipe.objectives and recipe.data.format != form:
            raise BertsmithError(f'{where}: the objective {name} needs data.format = "{form}"')


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BertsmithError(f"{path}: cannot be read ({error})") from error


def _apply(given: dict[str, Any], change: str) -> None:
    """Set one key of a nested table."""
    key, sign, value = change.partition("=")
    if not sign or not key.strip():
        raise BertsmithError(f"--set {change}: it should look like train.learning_rate=1e-3")
    *tables, last = key.strip().split(".")
    place = given
    for table in tables:
        place = place.setdefault(table, {})
        if not isinstance(place, dict):
            raise BertsmithError(f"--set {change}: {table} is not a table")
    try:
        place[last] = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        place[last] = value.strip()


def _complaint(error: ValidationError) -> str:
    """The first thing that is wrong, with the nearest known key where one is unknown."""
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    place = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"unknown key {place}{nearest(str(first['loc'][-1]), _keys(first['loc'][:-1]))}"
    return f"{place}: {first['msg'][0].lower()}{first['msg'][1:]}"


def _keys(table: tuple[int | str, ...]) -> list[str]:
    """The keys that a table of the recipe may have."""
    part: Any = Recipe
    for name in table:
        if isinstance(name, str) and name in part.model_fields:
            part = part.model_fields[name].annotation
        part = Stage if part == tuple[Stage, ...] else part
    return list(part.model_fields)


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name a person may have meant, if one is near."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


def _write(lines: list[str], name: str, value: Any, prefix: str = "") -> None:
    """A key, or a table with its own keys."""
    if isinstance(value, Mapping):
        lines += ["", f"[{prefix}{name}]"]
        plain = {key: item for key, item in value.items() if not isinstance(item, Mapping)}
        for key, item in plain.items():
            _write(lines, key, item)
        for key, item in value.items():
            if key not in plain:
                _write(lines, key, item, f"{prefix}{name}.")
    elif isinstance(value, tuple) and value and isinstance(value[0], Mapping):
        for item in value:
            lines += ["", f"[[{name}]]", *(f"{key} = {_value(v)}" for key, v in item.items())]
    elif value is not None:
        lines.append(f"{_key(name)} = {_value(value)}")


def _key(name: str) -> str:
    plain = name.replace("_", "").replace("-", "")
    return name if plain.isascii() and plain.isalnum() else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items())
        return "{ " + inner + " }"
    return json.dumps(value) if not isinstance(value, float) else repr(value)
