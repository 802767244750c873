"""`bertsmith lens`: the predictions for a mask at each depth."""

from dataclasses import asdict
from functools import partial
from typing import Any

import typer

from bertsmith.cli import inspection, shared, tasks
from bertsmith.cli.declare import argument, option


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
    from bertsmith.analysis.pages import depth_name, lens_page

    bert = shared.open_model(model, **loading)
    guesses = look(bert, text, top)

    def show() -> None:
        masks = sorted({guess.mask for guess in guesses})
        for mask in masks:
            if len(masks) > 1:
                typer.echo(f"mask {mask + 1}")
            rows = []
            for guess in guesses:
                if guess.mask == mask:
                    pairs = zip(guess.tokens, guess.scores, strict=True)
                    cells = [f"{shared.clipped(token, 20)} {score:.0%}" for token, score in pairs]
                    rows.append((depth_name(guess.depth), *cells))
            tasks.show_table(("depth", *[""] * top), rows, left=True, gap=3)

    page = partial(lens_page, text, guesses, inspection.model_name(model))
    inspection.present(as_json, map(asdict, guesses), show, out, page)
    shared.notes(bert.ledger.lines())
