"""What the verbs of tasks share: columns of files, and tables of scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertsmith.cli import options as shared

if TYPE_CHECKING:
    from bertsmith.data import Dataset

Task = Annotated[
    str | None,
    typer.Option(
        help="classification, multilabel, regression, tagging, answering, choice or similarity; "
        "guessed where not given."
    ),
]
LabelNames = Annotated[str | None, typer.Option(help="What labels 0, 1, ... mean: O,B-PER,I-PER")]

Options = Mapping[str, tuple[Any, Any]]  # an option's name → what it takes, and its default
ROLES = (
    *("text", "pair", "label", "score", "tokens", "tags", "question", "passage", "answers"),
    *("start", "id", "anchor", "positive", "negative", "prompt", "options", "answer"),
)
COLUMNS: Options = {
    f"{role}_column": (
        Annotated[str | None, typer.Option(help=f"The column of the {role}, where not found.")],
        None,
    )
    for role in ROLES
}


def takes(options: Options, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a verb take options that it shares with others; it gets them together, as `name`."""

    def wrap(verb: Callable[..., None]) -> Callable[..., None]:
        @wraps(verb)
        def call(**given: Any) -> None:
            verb(**{name: {option: given.pop(option) for option in options}}, **given)

        own = signature(verb, eval_str=True).parameters.values()
        more = [
            Parameter(option, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for option, (kind, default) in options.items()
        ]
        kept = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own if one.name != name]
        parameters = [*kept, *more]
        call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in parameters}
        return call

    return wrap


def columns_of(given: Mapping[str, str | None]) -> dict[str, str]:
    """Roles and columns from the options that name them."""
    return {option.removesuffix("_column"): name for option, name in given.items() if name}


def names_of(given: str | None) -> list[str] | None:
    """Names between commas."""
    return [name.strip() for name in given.split(",")] if given else None


def show_table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A plain table, numbers to the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place else "left")
    for row in rows:
        table.add_row(*(Text(shown(cell)) for cell in row))
    shared.console().print(table)


def shown(value: Any) -> str:
    """A cell as text."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) > 1 else f"{value:.4f}"
    return str(value)


def show_scores(columns: Mapping[str, Mapping[str, float] | None]) -> None:
    """Scores of one or several splits or models, side by side."""
    there = {name: scores for name, scores in columns.items() if scores}
    names = list(dict.fromkeys(name for scores in there.values() for name in scores))
    rows = [(name, *(scores.get(name) for scores in there.values())) for name in names]
    show_table(("", *there), rows)


def understood(dataset: Dataset[Any]) -> Iterator[str]:
    """How a file was understood: its task, and which column is what."""
    yield f"task: {dataset.task}" + (f" (guessed: {dataset.guessed})" if dataset.guessed else "")
    yield told(dataset.columns) + (f"; tags in {dataset.scheme.upper()}" if dataset.scheme else "")


def told(columns: Mapping[str, str]) -> str:
    """Which column is what."""
    return "columns: " + ", ".join(f"{role} = {name}" for role, name in columns.items())
