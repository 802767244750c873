"""`bertsmith cka`: how similar the states of a model are at different depths, or of two models."""

from functools import partial
from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import inspection, shared, tasks
from bertsmith.cli.declare import argument
from bertsmith.errors import BertsmithError


def cka(
    model: shared.Model,
    file: Path = argument(..., "A file of texts."),
    against: inspection.Against = None,
    limit: inspection.Limit = 1000,
    seed: inspection.Seed = 0,
    out: inspection.Out = None,
    loading: Any = shared.LOADING,
    as_json: shared.Json = False,
) -> None:
    """Compare the states at all depths, of one model or of two.

    Prints linear CKA (Kornblith et al. 2019) between every two depths, over the mean states of
    the texts without special tokens. Depth 0 is the output of the embeddings, depth k that of
    block k. Two models may have different tokenizers and widths.
    """
    inspection.check_out(out)
    texts = inspection.sampled_texts(file, limit, seed)
    if len(texts) < 2:
        raise BertsmithError(f"{file}: CKA needs two texts or more")
    from bertsmith.analysis.layers import alike, few_texts
    from bertsmith.analysis.pages import cka_page

    models = [model] if against is None else [model, against]
    berts = [shared.open_model(name, **loading) for name in models]
    notes = few_texts(len(texts), *berts)
    shared.notes(notes)
    table = alike(berts[0], texts, *berts[1:])
    names = [inspection.model_name(name) for name in models]

    def show() -> None:
        depths = f"rows: depths of {names[0]}; columns: depths of {names[-1]}"
        typer.echo(f"{depths}; 0 is the embeddings")
        rows = [(str(depth), *(f"{value:.2f}" for value in row)) for depth, row in enumerate(table)]
        tasks.show_table(("", *map(str, range(table.shape[1]))), rows)

    rows = ({"depth": depth, "cka": row} for depth, row in enumerate(table.tolist()))
    page = partial(cka_page, table, names, len(texts), notes)
    inspection.present(as_json, rows, show, out, page)
    for bert in berts:
        shared.notes(bert.ledger.lines())
