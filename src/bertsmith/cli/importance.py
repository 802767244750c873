"""`bertsmith importance`: which words a label or an answer depends on."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.cli import options as shared
from bertsmith.cli import pages

if TYPE_CHECKING:
    from bertsmith.analysis.importance import Explained


def importance(
    model: shared.Model,
    text: Annotated[str, typer.Argument(help="A text, or a question.", show_default=False)],
    text_b: Annotated[
        str | None,
        typer.Argument(help="The second of a pair, or the passage.", show_default=False),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="For this label; default: the one the model gives.")
    ] = None,
    out: pages.Out = None,
    device: shared.Device = None,
    dtype: shared.Dtype = "float32",
    family: shared.Family = None,
    as_json: shared.Json = False,
) -> None:
    """Show which words a label or an answer depends on.

    Every word is masked in turn: its number is what the log probability of the answer loses. Below
    zero it speaks against the answer. Of a model of numbers it is what the number loses.
    """
    pages.check(out)
    from bertsmith.analysis.heatmap import save_page
    from bertsmith.analysis.importance import explained
    from bertsmith.analysis.sheets import importance_page

    bert = shared.open_model(model, device, dtype, family)
    found = explained(bert, text, text_b, label)
    texts = [text] if text_b is None else [text, text_b]
    if out is not None:
        save_page(out, importance_page(texts, found, Path(model).name or model))
    if as_json:
        shared.print_json([asdict(found)])
    else:
        _show(found)
        if out is not None:
            typer.echo(f"written to {out}")
    shared.close(bert)


def _show(found: Explained) -> None:
    """The words in their order, each with a bar to the right (for) or to the left (against)."""
    from rich.text import Text

    from bertsmith.analysis.sheets import told

    console = shared.console()
    typer.echo(told(found))
    most = max((abs(word.importance) for word in found.words), default=0.0) or 1.0
    for word in found.words:
        length = round(12 * abs(word.importance) / most)
        bar = f"{'█' * length:12}" if word.importance > 0 else f"{'▒' * length:12}"
        line = f"{word.importance:+8.3f}  {bar}  {shared.clipped(word.text, 40)}"
        console.print(Text(line), no_wrap=True)
