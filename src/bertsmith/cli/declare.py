"""How verbs declare options: one by one, from settings, or together with other verbs."""

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

import typer

from bertsmith.settings import declared

Options = Mapping[str, tuple[Any, Any]]  # an option's name → its type and its default
Verb = Callable[..., None]


def option(default: Any, help: str, *names: str, **more: Any) -> Any:
    """An option of a verb: its default (... where there is none) and a sentence of help."""
    return typer.Option(default, *names, help=help, **more)


def flag(name: str, help: str) -> Any:
    """An option that is off unless it is given."""
    return typer.Option(False, name, help=help)


def argument(default: Any, help: str, **more: Any) -> Any:
    """An argument of a verb: its default (... where there is none) and a sentence of help."""
    return typer.Argument(default, help=help, show_default=False, **more)


def options_of(
    settings: type, *names: str, optional: bool = False, bounded: bool = True
) -> Options:
    """Options for settings: those that are named, or all in the order of their declaration.

    Optional ones are None unless given, because their defaults depend on the model or the task.
    Without `bounded`, the settings themselves are checked, not the options.
    """
    kinds, fields = get_type_hints(settings), declared(settings)
    options = {}
    for name in names or fields:
        default, about = fields[name].default, fields[name].metadata
        kind = about.get("written", kinds[name])
        words = [about["option"]] if "option" in about else []
        if optional:
            text = _with_default(about["description"], about.get("usual", default))
            options[name] = kind | None, option(None, text, *words)
            continue
        if kind is bool and not words:
            words = [f"--{name.replace('_', '-')}"]  # and no --no- beside it
        more = {"min": about.get("ge"), "max": about.get("le")} if bounded else {}
        more |= {"metavar": about.get("metavar")}
        options[name] = kind, option(default, about["description"], *words, **more)
    return options


def _with_default(sentence: str, default: Any) -> str:
    plain = default is None or default == "" or isinstance(default, bool)
    return sentence if plain else f"{sentence.removesuffix('.')} [default: {default}]."


def verb(function: Verb) -> Verb:
    """Let a verb take groups of options: parameters whose default is a table of options.

    In the help the options of a group stand where its parameter does; the verb gets their values
    as one dictionary.
    """
    parameters: list[Parameter] = []
    groups: dict[str, Options] = {}
    for parameter in signature(function, eval_str=True).parameters.values():
        single = {parameter.name: (parameter.annotation, parameter.default)}
        if isinstance(parameter.default, Mapping):
            groups[parameter.name] = parameter.default
        parameters += [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in groups.get(parameter.name, single).items()
        ]

    @wraps(function)
    def call(**values: Any) -> None:
        for name, options in groups.items():
            values[name] = {option: values.pop(option) for option in options}
        function(**values)

    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call
