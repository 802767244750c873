"""`bertsmith cka`: how alike the layers of a model are, or those of two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.cli import options as shared
from bertsmith.cli import pages
from bertsmith.errors import BertsmithError

if TYPE_CHECKING:
    from bertsmith.analysis.attention import Floats


def cka(
    models_and_file: Annotated[
        list[str], typer.Argument(help="MODEL FILE, or MODEL OTHER FILE to compare two.")
    ],
    limit: Annotated[int, typer.Option(help="How many texts.", min=2)] = 500,
    out: pages.Out = None,
    device: shared.Device = None,
    dtype: shared.Dtype = "float32",
    family: shared.Family = None,
    as_json: shared.Json = False,
) -> None:
    """Show how alike layers are, of one model or of two.

    Linear CKA (Kornblith et al. 2019) between all depths, over the mean states of the texts in
    FILE, a line each (or .jsonl); the two models may have different tokenizers and widths.
    """
    *models, file = models_and_file
    if len(models) not in (1, 2):
        raise BertsmithError("give MODEL FILE, or MODEL OTHER FILE")
    pages.check(out)
    texts = shared.read_texts(None, Path(file), limit=limit)
    if len(texts) < 2:
        raise BertsmithError(f"{file}: CKA needs two texts or more")
    from bertsmith.analysis.heatmap import save_page
    from bertsmith.analysis.layers import alike
    from bertsmith.analysis.sheets import alike_page

    berts = [shared.open_model(name, device, dtype, family) for name in models]
    table = alike(berts[0], texts, *berts[1:])
    names = [Path(name).name or name for name in models]
    if out is not None:
        save_page(out, alike_page(table, names, len(texts)))
    if as_json:
        shared.print_json(
            {"depth": depth, "cka": [float(value) for value in row]}
            for depth, row in enumerate(table)
        )
    else:
        _show(table, names)
        if out is not None:
            typer.echo(f"written to {out}")
    for bert in berts:
        shared.close(bert)


def _show(table: Floats, names: list[str]) -> None:
    from rich.table import Table

    typer.echo(f"rows: depths of {names[0]}; columns: depths of {names[-1]}; 0 is the embeddings")
    shown = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("", *map(str, range(table.shape[1]))):
        shown.add_column(heading, justify="right")
    for depth, row in enumerate(table):
        shown.add_row(str(depth), *(f"{value:.2f}" for value in row))
    shared.console().print(shown)
