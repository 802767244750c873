"""`bertsmith lens`: the predictions for a mask at each depth."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from bertsmith.cli import inspection
from bertsmith.cli import options as shared
from bertsmith.cli.declare import argument, option, takes

if TYPE_CHECKING:
    from bertsmith.analysis.layers import DepthGuess


@takes(shared.LOADING, "loading")
def lens(
    model: shared.Model,
    text: str = argument(..., "A text with [MASK] or <mask> in it."),
    top: int = option(5, "Number of predictions at each depth.", min=1),
    out: inspection.Out = None,
    loading: Any = None,
    as_json: shared.Json = False,
) -> None:
    """Show the predictions for a mask at each depth (the logit lens).

    The masked-LM head reads the states at every depth: 0 is the output of the embeddings, k that of
    block k. The head was trained on the last depth only.
    """
    inspection.check_out(out)
    from bertsmith.analysis.layers import lens as look
    from bertsmith.analysis.pages import lens_page
    from bertsmith.files import write_text

    bert = shared.open_model(model, **loading)
    guesses = look(bert, text, top)
    if out is not None:
        write_text(out, lens_page(text, guesses, inspection.model_name(model)))
    if as_json:
        shared.print_json(asdict(one) for one in guesses)
    else:
        _show(guesses)
        inspection.written(out)
    shared.close(bert)


def _show(guesses: list[DepthGuess]) -> None:
    """For each mask a line for every depth, the most probable prediction first."""
    from rich.table import Table
    from rich.text import Text

    from bertsmith.analysis.pages import depth_name

    masks = sorted({one.mask for one in guesses})
    for mask in masks:
        if len(masks) > 1:
            typer.echo(f"mask {mask + 1}")
        table = Table(box=None, padding=(0, 3, 0, 0))
        table.add_column("depth", no_wrap=True)
        for one in guesses:
            if one.mask == mask:
                pairs = zip(one.tokens, one.scores, strict=True)
                cells = [f"{shared.clipped(token, 20)} {score:.0%}" for token, score in pairs]
                table.add_row(depth_name(one.depth), *map(Text, cells))
        shared.console().print(table)
