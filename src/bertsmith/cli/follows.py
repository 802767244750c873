"""`bertsmith follows`: the probability that one text follows another."""

from functools import partial
from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import shared
from bertsmith.cli.declare import argument, option
from bertsmith.errors import BertsmithError


def follows(
    model: shared.Model,
    first: str | None = argument(None, "A text."),
    second: str | None = argument(None, "The text that may follow it."),
    file: Path | None = option(None, "Read pairs of texts from this file."),
    loading: Any = shared.LOADING,
    as_json: shared.Json = False,
) -> None:
    """Print the probability that the second text follows the first.

    Uses the next-sentence head of BERT, or the sentence-order head of ALBERT, which compares a
    pair with its reverse. The model must have been saved with that head.
    """
    if (first is None or second is None) == (file is None) or (first and file):
        raise BertsmithError("give two texts, or a file of pairs with --file")
    pairs = [(first or "", second or "")]
    if file is not None:
        from bertsmith.tasks.following import read_pairs

        pairs = read_pairs(file)
    bert = shared.open_model(model, **loading)
    firsts, seconds = ([pair[side] for pair in pairs] for side in (0, 1))
    for a, b, chance in zip(firsts, seconds, bert.follows(firsts, seconds), strict=True):
        texts = "" if file is None else f"  {shared.clipped(f'{a} / {b}', 90)}"
        row = {"first": a, "second": b, "probability": chance}
        shared.output(as_json, [row], partial(typer.echo, f"{chance:7.2%}{texts}"))
    shared.notes(bert.ledger.lines())
