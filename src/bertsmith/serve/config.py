"""The configuration file of a server: models, aliases, limits, keys and where it listens."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

from pydantic import BaseModel, BeforeValidator, Field, create_model

from bertsmith.errors import BertsmithError, nearest
from bertsmith.serve.access import Key
from bertsmith.settings import declared
from bertsmith.settings.serving import Listening, ServingSettings
from bertsmith.train.recipe import RecipePart, parsed, read_toml, validated


class ModelSpec(RecipePart):
    """The directory or name of a model, and how it is loaded."""

    path: Annotated[str, Field(min_length=1)]
    device: str | None = None
    dtype: Literal["float32", "bfloat16", "float16", "int8"] | None = None
    family: str | None = None


def _table(settings: type) -> type[BaseModel]:
    kinds, keys = get_type_hints(settings), dict[str, Any]()
    for name, field in declared(settings).items():
        low, high = field.metadata.get("ge"), field.metadata.get("le")
        keys[name] = (kinds[name], Field(field.default, ge=low, le=high))
    return create_model(settings.__name__, __base__=RecipePart, **keys)


Share = Annotated[float, Field(gt=0, le=1)]
ServerTable, LimitsTable = _table(Listening), _table(ServingSettings)


# A text stands for a model's path alone, or for an alias of one model.
PATH_ALONE = BeforeValidator(lambda value: {"path": value} if isinstance(value, str) else value)
ONE_MODEL = BeforeValidator(lambda value: {value: 1.0} if isinstance(value, str) else value)


class Configuration(RecipePart):
    """The tables of a configuration file; unknown keys are errors."""

    models: dict[str, Annotated[ModelSpec, PATH_ALONE]] = Field({})
    aliases: dict[str, Annotated[dict[str, Share], ONE_MODEL]] = Field({})
    server: ServerTable = ServerTable()  # type: ignore[valid-type]
    limits: LimitsTable = LimitsTable()  # type: ignore[valid-type]
    keys: tuple[Key, ...] = ()


class ServerPlan(NamedTuple):
    """What a server process serves until its configuration is read again."""

    models: dict[str, ModelSpec]
    aliases: dict[str, dict[str, float]]
    settings: ServingSettings
    keys: tuple[Key, ...] = ()


def read_configuration(path: Path | None) -> Configuration:
    """Read a configuration file; without one, everything has its default."""
    values = {} if path is None else parsed(read_toml(path), str(path))
    content = validated(Configuration, values, str(path))
    names = [key.name for key in content.keys]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BertsmithError(f"{path}: two keys are named {twice}")
    for key in content.keys:
        known = {name.partition("@")[0] for name in content.models}
        if wrong := next((name for name in key.models or () if name not in known), None):
            near = nearest(wrong, known)
            raise BertsmithError(f"{path}: the key {key.name}: there is no model {wrong!r}{near}")
    for name in (*content.models, *content.aliases):
        if not name.strip() or name.startswith("@") or name.endswith("@") or name.count("@") > 1:
            raise BertsmithError(f"{path}: {name!r} is no name: write NAME or NAME@VERSION")
    return content


def plan_of(
    content: Configuration,
    folder: Path,
    settings: ServingSettings,
    places: Mapping[str, str],
    loading: Mapping[str, Any],
) -> ServerPlan:
    """The models of the command line, then those of a file; its paths are relative to `folder`."""
    models = {name: ModelSpec(path=spec, **loading) for name, spec in places.items()}
    for name, spec in content.models.items():
        beside = folder / spec.path
        models[name] = spec.model_copy(update={"path": str(beside)}) if beside.is_dir() else spec
    if not models:
        raise BertsmithError("the configuration file names no models: add a table [models]")
    return ServerPlan(models, content.aliases, settings, content.keys)


def overridden(table: BaseModel, options: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """The settings of a table of the file, overridden by options that are not at their default."""
    values = {name: getattr(table, name) for name in declared(kind)}
    defaults = {field.name: field.default for field in fields(kind)}
    return values | {name: value for name, value in options.items() if value != defaults[name]}
