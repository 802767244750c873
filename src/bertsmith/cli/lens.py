"""`bertsmith lens`: the predictions for a mask at each depth."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from bertsmith.cli import inspection, tasks
from bertsmith.cli import options as shared
from bertsmith.cli.declare import argument, option

if TYPE_CHECKING:
    from bertsmith.analysis.layers import DepthGuess


def lens(
    model: shared.Model,
    text: str = argument(..., "A text with [MASK] or <mask> in it."),
    top: int = option(5, "Number of predictions at each depth.", min=1),
    out: inspection.Out = None,
    loading: Any = shared.LOADING,
    as_json: shared.Json = False,
) -> None:
    """Show the predictions for a mask at each depth (the logit lens).

    The masked-LM head reads the states at every depth: 0 is the output of the embeddings, k that of
    block k. The head was trained on the last depth only.
    """
    inspection.check_out(out)
    from bertsmith.analysis.layers import lens as look
    from bertsmith.analysis.pages import lens_page

    bert = shared.open_model(model, **loading)
    guesses = look(bert, text, top)
    inspection.present(
        as_json,
        map(asdict, guesses),
        lambda: _show(guesses, top),
        out,
        lambda: lens_page(text, guesses, inspection.model_name(model)),
    )
    shared.close(bert)


def _show(guesses: list[DepthGuess], top: int) -> None:
    """For each mask a line for every depth, the most probable prediction first."""
    from bertsmith.analysis.pages import depth_name

    masks = sorted({one.mask for one in guesses})
    for mask in masks:
        if len(masks) > 1:
            typer.echo(f"mask {mask + 1}")
        rows = []
        for one in guesses:
            if one.mask == mask:
                pairs = zip(one.tokens, one.scores, strict=True)
                cells = [f"{shared.clipped(token, 20)} {score:.0%}" for token, score in pairs]
                rows.append((depth_name(one.depth), *cells))
        tasks.show_table(("depth", *[""] * top), rows, left=True, gap=3)
