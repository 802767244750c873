"""`bertsmith export`: a model as an ONNX graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bertsmith.cli import options as shared


def export(
    model: shared.Model,
    onnx: Annotated[
        Path, typer.Option(help="The directory to write the ONNX graph to.", show_default=False)
    ],
    family: shared.Family = None,
    overwrite: shared.Overwrite = False,
    as_json: shared.Json = False,
) -> None:
    """Export a model and its tokenizer as an ONNX graph.

    The graph has pooling, normalisation and every head in it, reads batches of any size and
    length, and is compared with torch in onnxruntime before it is kept.
    """
    from bertsmith.checkpoint import export_model

    bert = shared.open_model(model, "cpu", "float32", family)
    done = export_model(
        onnx,
        bert.checkpoint,
        bert.tokenizer,
        bert.sentence,
        longest=bert.max_length,
        overwrite=overwrite,
    )
    if as_json:
        shared.print_json([done])
        return
    typer.echo(f"written to {done['out']}, {done['bytes'] / 2**20:.1f} MiB")
    typer.echo(f"inputs: {', '.join(done['inputs'])}; outputs: {', '.join(done['outputs'])}")
    worst = max(done["differences"].values())
    lengths = ", ".join(map(str, done["lengths"]))
    typer.echo(f"largest difference from torch {worst:.1e}, at lengths {lengths}")
