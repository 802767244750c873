"""`bertsmith lens`: what a model would guess for a mask at each depth."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.cli import options as shared
from bertsmith.cli import pages

if TYPE_CHECKING:
    from bertsmith.analysis.layers import DepthGuess


def lens(
    model: shared.Model,
    text: Annotated[
        str, typer.Argument(help="A text with [MASK] or <mask> in it.", show_default=False)
    ],
    top: Annotated[int, typer.Option(help="How many guesses at each depth.")] = 5,
    out: pages.Out = None,
    device: shared.Device = None,
    dtype: shared.Dtype = "float32",
    family: shared.Family = None,
    as_json: shared.Json = False,
) -> None:
    """Show what a model would guess for a mask at each depth.

    The masked-LM head reads every layer's states (the logit lens). It was trained on the last
    layer: what it makes of the others is a view, not a truth.
    """
    pages.check(out)
    from bertsmith.analysis.heatmap import save_page
    from bertsmith.analysis.layers import lens as look
    from bertsmith.analysis.sheets import lens_page

    bert = shared.open_model(model, device, dtype, family)
    found = look(bert, text, top)
    if out is not None:
        save_page(out, lens_page(text, found, Path(model).name or model))
    if as_json:
        shared.print_json(asdict(one) for one in found)
    else:
        _show(found)
        if out is not None:
            typer.echo(f"written to {out}")
    shared.close(bert)


def _show(found: list[DepthGuess]) -> None:
    """For each mask a line for every depth, the best guess first."""
    from rich.table import Table
    from rich.text import Text

    from bertsmith.analysis.sheets import depth_name

    masks = sorted({one.mask for one in found})
    for mask in masks:
        if len(masks) > 1:
            typer.echo(f"mask {mask + 1}")
        table = Table(box=None, padding=(0, 3, 0, 0), show_header=False)
        for one in found:
            if one.mask == mask:
                guesses = zip(one.tokens, one.scores, strict=True)
                cells = [f"{shared.clipped(token, 20)} {score:.0%}" for token, score in guesses]
                table.add_row(depth_name(one.depth), *map(Text, cells))
        shared.console().print(table)
