"""`bertsmith fill-mask`: guess masked words."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.cli import options as shared

if TYPE_CHECKING:
    from bertsmith.tasks import Guess


def fill_mask(
    model: shared.Model,
    texts: shared.Texts = None,
    file: shared.File = None,
    top: Annotated[int, typer.Option(help="How many guesses for each mask.")] = 5,
    device: shared.Device = None,
    dtype: shared.Dtype = "float32",
    family: shared.Family = None,
    as_json: shared.Json = False,
) -> None:
    """Guess the words that [MASK] (or the model's own mask token) stands for."""
    given = shared.read_texts(texts, file)
    bert = shared.open_model(model, device, dtype, family)
    found = bert.fill_mask(given, top=top)
    if as_json:
        rows = zip(given, found, strict=True)
        shared.print_json({"text": t, "guesses": [asdict(g) for g in row]} for t, row in rows)
    else:
        _show(given, found)
    shared.close(bert)


def _show(texts: list[str], found: list[list[Guess]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = shared.console()
    for text, row in zip(texts, found, strict=True):
        console.print(f"[bold]{escape(text)}[/bold]")
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        several = any(guess.mask for guess in row)
        for guess in row:
            place = [f"mask {guess.mask + 1}"] if several else []
            table.add_row(*place, f"{guess.score:.3f}", escape(guess.token), escape(guess.text))
        console.print(table)
