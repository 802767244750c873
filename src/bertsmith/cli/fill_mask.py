"""`bertsmith fill-mask`: predict masked words."""

from dataclasses import asdict
from itertools import groupby
from typing import Any

from bertsmith.cli import shared, tasks
from bertsmith.cli.declare import option


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
    from rich.text import Text

    lines = shared.read_texts(texts, file, columns)
    bert = shared.open_model(model, **loading)
    guesses = bert.fill_mask(lines, top=top)
    pairs = zip(lines, guesses, strict=True)
    rows = ({"text": text, "guesses": [asdict(guess) for guess in row]} for text, row in pairs)

    def show() -> None:
        """Show each text with one of its masks in bold, and below it the guesses for that mask."""
        console, mask = shared.console(), str(bert.tokenizer.mask_token)
        for text, row in zip(lines, guesses, strict=True):
            place = 0
            for number, best in groupby(row, key=lambda guess: guess.mask):
                place = text.find(mask, place + (number > 0))
                name = f"mask {number + 1}: " if row[-1].mask else ""
                room = console.width - len(name) - len(mask)
                before, after = _around(text[:place], text[place + len(mask) :], room)
                console.print(Text.assemble(name, before, (mask, "bold"), after), no_wrap=True)
                for guess in best:
                    bar, token = "█" * round(20 * guess.score), shared.clipped(guess.token, 40)
                    console.print(f"{guess.score:7.1%}  {bar:20}  {token}", markup=False)

    shared.output(as_json, rows, show)
    shared.notes(bert.ledger.lines())


def _around(before: str, after: str, room: int) -> tuple[str, str]:
    """As much of what stands before and after a mask as there is room for."""
    left = max(room // 2, room - len(after))
    right = room - min(left, len(before))
    return shared.clipped(before[::-1], left)[::-1], shared.clipped(after, right)
