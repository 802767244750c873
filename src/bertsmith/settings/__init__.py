"""Settings of the commands, each declared once: its type, its default, its bounds and a sentence.

The command line makes options of them, fine-tuning a model that validates. Nothing here imports
more than the standard library, so that `--help` is fast.
"""

from collections.abc import Callable
from dataclasses import Field, field
from inspect import Parameter, signature
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.numbers import real_number

Function = TypeVar("Function", bound=Callable[..., Any])
Settings = TypeVar("Settings")


def setting(default: Any, sentence: str, **more: Any) -> Any:
    """Declare a setting.

    `ge` and `le` bound it. `usual` says what the default is where it depends on the model or the
    task, `option` names the option where it is not the setting's own name, and `written` is the
    type of what is written on the command line where Python takes another.
    """
    return field(default=default, metadata={"description": sentence, **more})


def declared(owner: type) -> dict[str, Field[Any]]:
    """The settings that a class declares; a field without a sentence is not one of them."""
    fields = getattr(owner, "__dataclass_fields__", None) or vars(owner)
    return {
        name: field
        for name, field in fields.items()
        if isinstance(field, Field) and "description" in field.metadata
    }


def name_of(settings: type, name: str) -> str:
    """The name of a class's setting, as messages show it."""
    option = declared(settings)[name].metadata.get("option", "")
    return setting_name(name, option=option.partition("/")[0])


def taking(settings: type, usual: Any = ...) -> Callable[[Function], Function]:
    """Name the settings that a function takes as keywords in its signature, for help and editors.

    Their defaults are those of the settings, or `usual`.
    """

    def wrap(function: Function) -> Function:
        declaration = signature(function)
        parameters = [
            parameter
            for parameter in declaration.parameters.values()
            if parameter.kind is not Parameter.VAR_KEYWORD
        ]
        parameters += [
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                annotation=settings.__annotations__[name],
                default=field.default if usual is ... else usual,
            )
            for name, field in declared(settings).items()
        ]
        shown = declaration.replace(parameters=parameters)
        function.__signature__ = shown  # type: ignore[attr-defined]
        return function

    return wrap


def picked(settings: type[Settings], keywords: dict[str, Any], *, only: bool = False) -> Settings:
    """Take the settings of a class out of keyword arguments; choices and bounds are checked.

    With `only`, any other keyword is an error.
    """
    fields, kinds = declared(settings), get_type_hints(settings)
    values = {name: keywords.pop(name) for name in fields if name in keywords}
    for name, value in values.items():
        about = fields[name].metadata
        types = (kinds[name], *get_args(kinds[name]))
        choices = next((get_args(kind) for kind in types if get_origin(kind) is Literal), ())
        if choices and value not in (*choices, fields[name].default):
            raise BertsmithError(
                f"{name_of(settings, name)} must be {' or '.join(choices)}, not {value!r:.40}"
            )
        bounds = {side: about[key] for key, side in (("ge", "low"), ("le", "high")) if key in about}
        if bounds and not (value is None and fields[name].default is None):
            real_number(value, name_of(settings, name), **bounds)
    if only and keywords:
        raise BertsmithError(f"unknown setting {next(iter(keywords))!r}")
    return settings(**values)
