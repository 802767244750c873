"""What the verbs of tasks share: columns of files, and tables of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from bertsmith.cli import options as shared

Task = Annotated[
    str | None,
    typer.Option(
        help="classification, multilabel, regression, tagging, answering, choice or similarity; "
        "guessed where not given."
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", help="Which column is what: --column text=review (again for more)."),
]
LabelNames = Annotated[str | None, typer.Option(help="What labels 0, 1, ... mean: O,B-PER,I-PER")]


def columns_of(given: Sequence[str] | None) -> dict[str, str]:
    """Roles and columns from words like text=review."""
    from bertsmith.errors import BertsmithError
    from bertsmith.tasks.data.columns import NAMES

    roles = {*NAMES, "pair"}
    found = {}
    for word in given or ():
        role, equals, name = word.partition("=")
        if not equals or role not in roles:
            raise BertsmithError(
                f"--column is ROLE=NAME, not {word!r}; roles: {', '.join(sorted(roles))}"
            )
        found[role] = name
    return found


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
