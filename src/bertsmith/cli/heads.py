"""`bertsmith heads`: numbers about every attention head."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.cli import options as shared
from bertsmith.cli import pages

if TYPE_CHECKING:
    from bertsmith.analysis.heads import HeadNumbers


def heads(
    model: shared.Model,
    file: Annotated[
        Path,
        typer.Argument(
            help="Texts, a line each (or .jsonl); or sentences with dependencies (.conllu).",
            show_default=False,
        ),
    ],
    limit: Annotated[int, typer.Option(help="How many texts or sentences.", min=1)] = 1000,
    out: pages.Out = None,
    device: shared.Device = None,
    dtype: shared.Dtype = "float32",
    family: shared.Family = None,
    as_json: shared.Json = False,
) -> None:
    """Measure what every attention head does.

    How spread out it is, how far it looks, how much goes to special tokens, punctuation, the
    tokens beside it and others like it; and on CoNLL-U data which dependencies it finds.
    """
    pages.check(out)
    treebank = ".conllu" in file.suffixes
    lines = shared.read_lines(file) if treebank else shared.read_texts(None, file, limit=limit)
    from bertsmith.analysis.heads import measure, parsed, texts
    from bertsmith.analysis.heatmap import heads_page, save_page
    from bertsmith.analysis.treebank import sentences

    bert = shared.open_model(model, device, dtype, family)
    if treebank:
        inputs = parsed(bert, islice(sentences(lines, str(file)), limit))
    else:
        inputs = texts(bert, lines)
    numbers = measure(bert, inputs)
    if out is not None:
        save_page(out, heads_page(numbers, Path(model).name or model))
    if as_json:
        shared.print_json(numbers.rows())
        for name, relation in numbers.relations.items():
            row = {key: value for key, value in asdict(relation).items() if key != "table"}
            shared.print_json([{"relation": name, **row}])
    else:
        _show(numbers)
        if out is not None:
            typer.echo(f"heat maps in {out}")
    shared.close(bert)


def _show(numbers: HeadNumbers) -> None:
    """The strongest heads of every kind; below, the best head for each relation."""
    import numpy as np
    from rich.table import Table

    from bertsmith.analysis.heads import METRICS

    console = shared.console()
    typer.echo(f"{numbers.inputs:,} inputs, {numbers.tokens:,} tokens; heads as layer.head")
    table = Table(box=None, padding=(0, 3, 0, 0))
    for heading in ("", "mean", "most of all", "", "", "which is"):
        table.add_column(heading, no_wrap=True)
    for name, about in METRICS.items():
        best = [f"{layer}.{head} {value:.2f}" for layer, head, value in numbers.strongest(name)]
        cells = [*best, "", ""][:3]
        table.add_row(name, f"{float(np.nanmean(numbers.metrics[name])):.2f}", *cells, about)
    console.print(table)
    if not numbers.relations:
        return
    typer.echo()
    found = Table(box=None, padding=(0, 3, 0, 0))
    for heading in ("relation", "words", "head", "found", "at distance", "found", "direction"):
        found.add_column(heading, no_wrap=True)
    for name, one in numbers.relations.items():
        found.add_row(
            name,
            f"{one.count:,}",
            f"{one.layer}.{one.head}",
            f"{one.accuracy:.1%}",
            f"{one.offset:+d}",
            f"{one.baseline:.1%}",
            one.direction,
        )
    console.print(found)
