"""Options that control how data is read, and tables of scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bertsmith.cli.declare import argument, options_of
from bertsmith.cli.terminal import console
from bertsmith.errors import BertsmithError
from bertsmith.settings import setting
from bertsmith.tasks.read import known_formats, known_roles
from bertsmith.tasks.reading import readings

TASKS = list(readings())
FORMATS = list(dict.fromkeys(known_formats().values()))
ROLES = tuple(known_roles())
if TYPE_CHECKING:
    from bertsmith.tasks.dataset import Dataset

    TaskName = str
    Format = str
else:  # the choices of an option are known when the program runs
    TaskName = Literal[*TASKS]
    Format = Literal[*FORMATS]

Task = Annotated[
    TaskName | None,
    typer.Option(
        metavar="TASK",
        help=f"Task: {', '.join(TASKS[:-1])} or {TASKS[-1]}; detected from the columns by default.",
    ),
]
TRAIN = argument(..., "A file, or a folder with train and dev files.")
LabelNames = Annotated[str | None, typer.Option(help="Names of labels 0, 1, ...: O,B-PER,I-PER.")]


class Columns:
    """How a source of data is read."""

    column: list[str] | None = setting(
        None,
        f"Assign a column to a role, such as text=review; repeatable. Roles: {', '.join(ROLES)}.",
        metavar="ROLE=NAME",
    )
    header: bool | None = setting(
        None, "Whether the first row names the columns; detected by default."
    )
    encoding: str | None = setting(
        None, "Encoding of text files: cp1252, latin-1, ... [default: UTF-8]."
    )
    input_format: Format | None = setting(
        None,
        f"Format of the input: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}; by default from the "
        "file's extension.",
        metavar="FORMAT",
    )
    split: Literal["train", "dev", "test"] | None = setting(
        None, "The split to read, if the source has several."
    )


COLUMNS = options_of(Columns)


def reading(options: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of `open_data`, from the options that say how a source is read."""
    arguments = dict(options)
    columns = {}
    for assignment in arguments.pop("column") or ():
        role, _, name = assignment.partition("=")
        if role not in ROLES or not name:
            raise BertsmithError(
                f"--column must be ROLE=NAME, not {assignment[:60]!r}; roles: {', '.join(ROLES)}"
            )
        columns[role] = name
    return {"columns": columns, "format": arguments.pop("input_format"), **arguments}


def names_of(text: str | None) -> list[str] | None:
    """Names between commas."""
    return [name.strip() for name in text.split(",")] if text else None


def show_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    left: bool = False,
    gap: int = 2,
    fold: bool = False,
) -> None:
    """A plain table; columns after the first are numbers, which stand at the right.

    With `fold`, cells that are too wide for a terminal continue on the next line.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, gap, 0, 0))
    for place, head in enumerate(heads):
        side: Literal["left", "right"] = "right" if place and not left else "left"
        overflow: Literal["fold", "ellipsis"] = "fold" if fold and place else "ellipsis"
        table.add_column(Text(head), justify=side, no_wrap=left, overflow=overflow)
    for row in rows:
        table.add_row(*(Text(shown(cell)) for cell in row))
    console().print(table)


def shown(value: Any) -> str:
    """A cell as text."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, float):
        if value != value:
            return "n/a"
        return f"{value:,.0f}" if value.is_integer() and abs(value) > 1 else f"{value:.4f}"
    return str(value)


def show_scores(columns: Mapping[str, Mapping[str, float] | None]) -> None:
    """Scores of one or several splits or models, side by side."""
    scored = {name: scores for name, scores in columns.items() if scores}
    names = list(dict.fromkeys(name for scores in scored.values() for name in scores))
    rows = [(name, *(scores.get(name) for scores in scored.values())) for name in names]
    rows = [(n, *(int(c) if n == "count" and c else c for c in cells)) for n, *cells in rows]
    show_table(("", *scored), rows)


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
        label = dataset.reading.target
        others = " or ".join(dataset.alternatives[:5])
        yield f"the {label} could also be {others}: choose with --column {label}=NAME and --task"


def columns_line(columns: Mapping[str, str]) -> str:
    """Which column holds what."""
    ordered = sorted(columns.items(), key=lambda item: [*ROLES, item[0]].index(item[0]))
    return "columns: " + ", ".join(f"{role} = {name}" for role, name in ordered)


def unused_line(names: Sequence[str]) -> str:
    """The columns that are not used."""
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"columns not used: {', '.join(names[:20])}{more}"
