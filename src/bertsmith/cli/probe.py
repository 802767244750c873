"""`bertsmith probe`: how much of a label each layer holds."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.cli import options as shared

if TYPE_CHECKING:
    from bertsmith.analysis.probes import Labelled

Data = Annotated[
    Path,
    typer.Argument(
        help="A treebank (.conllu: parts of speech), or lines of word and label.",
        show_default=False,
    ),
]


def probe(
    model: shared.Model,
    train: Data,
    test: Data,
    limit: Annotated[int, typer.Option(help="Sentences to learn from.", min=1)] = 500,
    seed: Annotated[int, typer.Option(help="Draws the labels of the control task.")] = 0,
    device: shared.Device = None,
    dtype: shared.Dtype = "float32",
    family: shared.Family = None,
    as_json: shared.Json = False,
) -> None:
    """Read labels off every layer, beside a control task.

    As many sentences of TEST are judged as are learned from.
    """
    from bertsmith.analysis.probes import probe as fit

    learn, judge = _read(train, limit), _read(test, limit)
    bert = shared.open_model(model, device, dtype, family)
    found = fit(bert, learn, judge, seed=seed)
    if as_json:
        beside = {"majority": found.majority, "lookup": found.lookup}
        shared.print_json(
            {
                "depth": one.depth,
                "accuracy": one.accuracy,
                "control": one.control,
                "selectivity": one.selectivity,
                **beside,
            }
            for one in found.scores
        )
    else:
        typer.echo(
            f"{len(found.labels)} labels, {found.train:,} words to learn from, {found.test:,} to "
            f"judge by; always the most frequent label {found.majority:.1%}, "
            f"the word form's {found.lookup:.1%}"
        )
        typer.echo("depth        accuracy   control   selectivity")
        for one in found.scores:
            name = "embeddings" if one.depth == 0 else f"layer {one.depth - 1}"
            numbers = f"{one.accuracy:8.1%} {one.control:9.1%} {one.selectivity:13.1%}"
            typer.echo(f"{name:12} {numbers}")
    shared.close(bert)


def _read(file: Path, limit: int) -> list[Labelled]:
    from bertsmith.analysis.probes import columns, tagged
    from bertsmith.analysis.treebank import sentences

    lines = shared.read_lines(file)
    if ".conllu" in file.suffixes:
        return tagged(islice(sentences(lines, str(file)), limit))
    return columns(lines, str(file))[:limit]
