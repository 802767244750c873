"""Settings of the commands, each declared once: its type, its default, its bounds and a sentence.

The command line makes options of them, fine-tuning a model that validates. Nothing here imports
more than the standard library, so that `--help` is fast.
"""

from collections.abc import Callable
from dataclasses import Field, field
from inspect import Parameter, signature
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def setting(default: Any, sentence: str, **more: Any) -> Any:
    """Declare a setting.

    `ge` and `le` bound it. `usual` says what the default is where it depends on the model or the
    task, and `option` names the option where it is not the setting's own name.
    """
    return field(default=default, metadata={"description": sentence, **more})


def declared(owner: type) -> dict[str, Field[Any]]:
    """The settings that a class declares; a field without a sentence is not one of them."""
    fields = getattr(owner, "__dataclass_fields__", None) or vars(owner)
    return {
        name: one
        for name, one in fields.items()
        if isinstance(one, Field) and "description" in one.metadata
    }


def taking(settings: type, usual: Any = ...) -> Callable[[Function], Function]:
    """Name the settings that a function takes as keywords in its signature, for help and editors.

    Their defaults are those of the settings, or `usual`.
    """

    def wrap(function: Function) -> Function:
        own = signature(function).parameters.values()
        kept = [one for one in own if one.kind is not Parameter.VAR_KEYWORD]
        more = [
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                annotation=settings.__annotations__[name],
                default=one.default if usual is ... else usual,
            )
            for name, one in declared(settings).items()
        ]
        shown = signature(function).replace(parameters=[*kept, *more])
        function.__signature__ = shown  # type: ignore[attr-defined]
        return function

    return wrap
