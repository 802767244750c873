"""Options that control how data is read, and tables of scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bertsmith.cli.terminal import console
from bertsmith.errors import BertsmithError

if TYPE_CHECKING:
    from bertsmith.tasks.dataset import Dataset

TaskName = Literal[
    "classification", "multilabel", "regression", "tagging", "answering", "choice", "similarity"
]
Task = Annotated[
    TaskName | None,
    typer.Option(
        metavar="TASK",
        help="Task: classification, multilabel, regression, tagging, answering, choice or "
        "similarity; detected from the columns by default.",
    ),
]
LabelNames = Annotated[str | None, typer.Option(help="Names of labels 0, 1, ...: O,B-PER,I-PER.")]

Options = Mapping[str, tuple[Any, Any]]  # an option's name → its annotation and its default
ROLES = (
    *("text", "pair", "label", "score", "tokens", "tags", "spans", "question", "passage"),
    *("answers", "start", "id", "anchor", "positive", "negative", "prompt", "options", "answer"),
)
Format = Literal["csv", "tsv", "jsonl", "json", "parquet", "xlsx", "txt", "conll", "conllu"]
COLUMNS: Options = {
    "column": (
        Annotated[
            list[str] | None,
            typer.Option(
                "--column",
                metavar="ROLE=NAME",
                help="Assign a column to a role, such as text=review; repeatable. Roles: "
                + ", ".join(ROLES)
                + ".",
            ),
        ],
        None,
    ),
    "header": (
        Annotated[
            bool | None,
            typer.Option(help="Whether the first row names the columns; detected by default."),
        ],
        None,
    ),
    "encoding": (
        Annotated[
            str | None,
            typer.Option(help="Encoding of text files: cp1252, latin-1, ... [default: UTF-8]."),
        ],
        None,
    ),
    "input_format": (
        Annotated[
            Format | None,
            typer.Option(
                metavar="FORMAT",
                help="Format of the input: csv, tsv, jsonl, json, parquet, xlsx, txt, conll or "
                "conllu; by default from the file's extension.",
            ),
        ],
        None,
    ),
    "split": (
        Annotated[
            Literal["train", "dev", "test"] | None,
            typer.Option(help="The split to read, if the source has several."),
        ],
        None,
    ),
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


def reading(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of `open_data`, from the options that say how a source is read."""
    columns = {}
    for one in given["column"] or ():
        role, equals, name = one.partition("=")
        if role not in ROLES or not equals or not name:
            known = ", ".join(ROLES)
            raise BertsmithError(f"--column must be ROLE=NAME, not {one[:60]!r}; roles: {known}")
        columns[role] = name
    return {
        "columns": columns,
        "header": given["header"],
        "encoding": given["encoding"],
        "format": given["input_format"],
        "split": given["split"],
    }


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
    console().print(table)


def shown(value: Any) -> str:
    """A cell as text."""
    if value is None:
        return ""
    if isinstance(value, float):
        if value != value:
            return "n/a"
        return f"{value:,.0f}" if value.is_integer() and abs(value) > 1 else f"{value:.4f}"
    return str(value)


def show_scores(columns: Mapping[str, Mapping[str, float] | None]) -> None:
    """Scores of one or several splits or models, side by side."""
    there = {name: scores for name, scores in columns.items() if scores}
    names = list(dict.fromkeys(name for scores in there.values() for name in scores))
    rows = [(name, *(scores.get(name) for scores in there.values())) for name in names]
    rows = [(n, *(int(c) if n == "count" and c else c for c in cells)) for n, *cells in rows]
    show_table(("", *there), rows)


def understood(dataset: Dataset[Any]) -> Iterator[str]:
    """How a source was read: its task, which column holds what, and which are not used."""
    yield f"task: {dataset.task}" + (f" (guessed: {dataset.guessed})" if dataset.guessed else "")
    yield from read_from(dataset)


def read_from(dataset: Dataset[Any]) -> Iterator[str]:
    """The columns that were read, those that were not, and what was left out."""
    scheme = f"; tags in {dataset.scheme.upper()}" if dataset.scheme else ""
    yield columns_line(dataset.columns) + scheme
    if dataset.unused:
        yield unused_line(dataset.unused)
    if dataset.alternatives:
        label = "score" if dataset.task in ("regression", "similarity") else "label"
        others = " or ".join(dataset.alternatives[:5])
        yield f"the {label} could also be {others}: choose with --column {label}=NAME and --task"


def columns_line(columns: Mapping[str, str]) -> str:
    """Which column holds what."""
    ordered = sorted(columns.items(), key=lambda one: [*ROLES, one[0]].index(one[0]))
    return "columns: " + ", ".join(f"{role} = {name}" for role, name in ordered)


def unused_line(names: Sequence[str]) -> str:
    """The columns that are not used."""
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"columns not used: {', '.join(names[:20])}{more}"
