"""Specs: comparisons as TOML files, checked key by key."""

import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import Field, field_validator

from bertsmith.errors import BertsmithError, nearest, setting_name
from bertsmith.train.recipe import (
    MOST_MINUTES,
    Recipe,
    RecipePart,
    checked,
    load_recipe,
    load_values,
    toml_names,
    validated,
)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,60}")
BUDGETS = ("tokens", "flops", "minutes")
SPECS = files("bertsmith.compare") / "specs"
QUARTERS = (0.25, 0.5, 0.75, 1.0)  # of the budget, after which variants are evaluated
Rate = Annotated[float, Field(ge=1e-9, le=1)]


class BudgetPart(RecipePart):
    """How much pre-training each variant gets. Several budgets are compared side by side."""

    tokens: int = Field(0, ge=0, le=10**15, description="tokens read in training")
    flops: float = Field(0.0, ge=0, le=1e30, description="floating-point operations of training")
    minutes: float = Field(
        0.0,
        ge=0,
        le=MOST_MINUTES,
        description="minutes of training; steps per minute are measured once, on this machine",
    )

    def kinds(self) -> tuple[str, ...]:
        """The budgets that are set."""
        return tuple(kind for kind in BUDGETS if getattr(self, kind))


class VariantPart(RecipePart):
    """One of the things compared: a recipe with changes, or a trained model."""

    recipe: str = Field("", description="a recipe by name or file")
    settings: dict[str, Any] = Field({}, description="tables of that recipe that differ")
    model: str = Field("", description="a model directory instead: it is only fine-tuned")
    static: str = Field("", description="another variant, whose models become static word vectors")

    def kinds(self) -> list[str]:
        """The keys that say what it is; a valid variant has one."""
        return [key for key in ("recipe", "model", "static") if getattr(self, key)]


class TaskPart(RecipePart):
    """Labelled data that variants are fine-tuned and scored on."""

    data: str = Field(description="glue, conll, squad, or a folder or file of your own")
    name: str = Field("", description="with glue: the task; default: as it is called here")
    folder: str = Field(
        "", description="folder of glue, conll or squad; default: in BERTSMITH_DATA"
    )
    kind: str = Field("", description="of your own data: the task, where not detected")
    columns: dict[str, str] = Field(
        {}, description="of your own data: role → column, where not detected"
    )
    train: int = Field(0, ge=0, le=10**9, description="training examples; 0: all")
    test: int = Field(0, ge=0, le=10**9, description="test examples; 0: all")
    metric: str = Field("", description="the score compared; default: the task's own")
    settings: dict[str, Any] = Field({}, description="settings of finetune for this task")


class FinetunePart(RecipePart):
    """How variants are fine-tuned."""

    seeds: int = Field(2, ge=1, le=100, description="for each pre-trained model")
    learning_rates: tuple[Rate, ...] = Field(
        (1e-4, 3e-4, 1e-3),
        min_length=1,
        max_length=20,
        description="each variant uses the one that is best on its dev data",
    )
    dev: float = Field(
        0.1,
        gt=0,
        le=0.5,
        description="share of the training data on which learning rates are chosen",
    )
    at: tuple[float, ...] = Field(
        (1.0,), description="fractions of the budget after which tasks are scored"
    )
    settings: dict[str, Any] = Field({}, description="settings of finetune, such as epochs")

    @field_validator("at")
    @classmethod
    def _quarters(cls, at: tuple[float, ...]) -> tuple[float, ...]:
        if not at or not set(at) <= set(QUARTERS):
            raise ValueError("should be some of 0.25, 0.5, 0.75 and 1.0")
        return tuple(sorted({*at, 1.0}))


class Spec(RecipePart):
    """The settings of a comparison."""

    about: str = ""
    corpus: str = Field("", description="a folder written by `bertsmith prepare`")
    seeds: int = Field(3, ge=1, le=100, description="pre-training runs of each variant")
    draws: int = Field(
        2000, ge=10, le=100_000, description="of the Multi-Bootstrap; at least 50 a pair"
    )
    device: str = Field("", description="cpu or cuda; by default a GPU if there is one")
    threads: int = Field(
        1, ge=1, le=1024, description="CPU threads of one job; results depend on them"
    )
    budget: BudgetPart = Field(default_factory=BudgetPart)
    settings: dict[str, Any] = Field({}, description="tables of every recipe that differ")
    variants: dict[str, VariantPart] = Field({})
    tasks: dict[str, TaskPart] = Field({})
    finetune: FinetunePart = Field(default_factory=FinetunePart)

    def toml(self) -> str:
        """Return the spec as TOML, with every key."""
        return tomli_w.dumps(self.model_dump())

    def recipe(self, variant: str) -> Recipe | None:
        """Return the recipe of a variant, or None if it is not pre-trained."""
        part = self.variants[variant]
        if part.static:
            return self.recipe(part.static)
        if not part.recipe:
            return None
        values = load_recipe(part.recipe).model_dump()
        for settings in (self.settings, part.settings):
            values = _merged(values, settings)
        values["data"]["corpus"] = self.corpus
        values["train"] |= {"device": self.device, "threads": self.threads}
        return checked(values, f"variant {variant}")

    def budgets(self, variant: str) -> tuple[str, ...]:
        """Return the budgets that a variant is trained with."""
        return ("none",) if self.variants[variant].model else self.budget.kinds()

    def pretraining_seeds(self, variant: str) -> range:
        """Return the pre-training seeds of a variant; a trained model has one."""
        return range(1 if self.variants[variant].model else self.seeds)


def _merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Nested tables with some keys changed; objectives and stages are replaced as a whole."""
    merged = dict(values)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both and key != "objectives" else value
    return merged


def load_spec(source: str | Path, changes: Iterable[str] = ()) -> Spec:
    """Load a spec by file or name, with `changes` such as "budget.tokens=1000000" (TOML)."""
    names = setting_name("spec_names()", option="bertsmith compare --list")
    values = load_values(source, changes, SPECS, "spec", f"{names} lists them")
    return checked_spec(values, str(source))


def checked_spec(values: dict[str, Any], where: str) -> Spec:
    """A spec of plain values; a bad one is a one-line error."""
    spec = validated(Spec, values, where)
    for table, names in (("variants", spec.variants), ("tasks", spec.tasks)):
        for name in names:
            if not NAME.fullmatch(name):
                raise BertsmithError(
                    f"{where}: {table}.{name}: a name has letters, digits, '.', '_', '+' and '-'"
                )
    if not spec.variants:
        raise BertsmithError(f"{where}: no variants to compare: add tables [variants.NAME]")
    for name, part in spec.variants.items():
        ways = part.kinds()
        if len(ways) != 1:
            raise BertsmithError(
                f"{where}: variants.{name} needs one of recipe, model and static, "
                + (f"not {' and '.join(ways)}" if ways else "and has none")
            )
        if part.settings and not part.recipe:
            raise BertsmithError(f"{where}: variants.{name}.settings is for recipes")
        if part.static:
            other = spec.variants.get(part.static)
            if other is None or not other.recipe:
                raise BertsmithError(
                    f"{where}: variants.{name}.static: no variant {part.static!r} with a recipe"
                    f"{nearest(part.static, spec.variants)}"
                )
    trained = [name for name, part in spec.variants.items() if not part.model]
    if trained and not spec.budget.kinds():
        raise BertsmithError(f"{where}: no budget: set budget.tokens, budget.flops or .minutes")
    if not trained and not spec.tasks:
        raise BertsmithError(f"{where}: trained models are compared on tasks: add [tasks.NAME]")
    return spec


def spec_names() -> list[str]:
    """Return the names of the specs that come with bertsmith."""
    return toml_names(SPECS)
