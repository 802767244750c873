"""`bertsmith fill-mask`: predict masked words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from bertsmith.cli import options as shared
from bertsmith.cli import tasks
from bertsmith.cli.declare import option

if TYPE_CHECKING:
    from bertsmith.tasks.filling import Guess


def fill_mask(
    model: shared.Model,
    texts: shared.Texts = None,
    file: shared.File = None,
    top: int = option(5, "Number of predictions for each mask."),
    loading: Any = shared.LOADING,
    as_json: shared.Json = False,
    columns: Any = tasks.COLUMNS,
) -> None:
    """Predict the words at [MASK] or <mask>."""
    lines = shared.read_texts(texts, file, columns)
    bert = shared.open_model(model, **loading)
    guesses = bert.fill_mask(lines, top=top)
    pairs = zip(lines, guesses, strict=True)
    rows = ({"text": text, "guesses": [asdict(one) for one in row]} for text, row in pairs)
    shared.output(as_json, rows, lambda: _show(lines, guesses, str(bert.tokenizer.mask_token)))
    shared.close(bert)


def _show(texts: list[str], predictions: Sequence[list[Guess]], mask: str) -> None:
    """Each text with one of its masks in bold, and below it the guesses for that mask."""
    from rich.text import Text

    console = shared.console()
    for text, row in zip(texts, predictions, strict=True):
        place = 0
        for number, guesses in groupby(row, key=lambda guess: guess.mask):
            place = text.find(mask, place + (number > 0))
            name = f"mask {number + 1}: " if row[-1].mask else ""
            room = console.width - len(name) - len(mask)
            before, after = _around(text[:place], text[place + len(mask) :], room)
            console.print(Text.assemble(name, before, (mask, "bold"), after), no_wrap=True)
            for guess in guesses:
                bar = "█" * round(20 * guess.score)
                word = shared.clipped(guess.token, 40)
                console.print(f"{guess.score:7.1%}  {bar:20}  {word}", markup=False)


def _around(before: str, after: str, room: int) -> tuple[str, str]:
    """As much of what stands before and after a mask as there is room for."""
    left = max(room // 2, room - len(after))
    right = room - min(left, len(before))
    return shared.clipped(before[::-1], left)[::-1], shared.clipped(after, right)
