"""`bertsmith export`: a model as an ONNX graph, or as a page that runs it in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import typer

from bertsmith.cli import options as shared
from bertsmith.cli.declare import option
from bertsmith.errors import BertsmithError


def export(
    model: shared.Model,
    onnx: Path | None = option(None, "The directory to write the ONNX graph to."),
    html: Path | None = option(None, "The HTML file to write the explorer to."),
    dtype: Literal["int8", "float16"] | None = option(
        None, "With --html: how the page stores weights; int8 by default."
    ),
    example: list[str] | None = option(
        None, "With --html: a text that the page offers to try; repeatable."
    ),
    family: shared.Family = None,
    overwrite: shared.Overwrite = False,
    as_json: shared.Json = False,
) -> None:
    """Export a model as an ONNX graph, or as one HTML page that runs it.

    With --onnx: the graph has pooling, normalisation and every head in it, reads batches of any
    size and length, and its outputs in onnxruntime are compared with torch's.

    With --html: one file with tokenizer, weights and inference, opened by double-click. It shows
    word pieces, embeddings, attention, layers and answers live while you type, and lets you
    mask words and switch heads and layers off. It needs no network and no server.
    """
    if (onnx is None) == (html is None):
        raise BertsmithError("give --onnx DIRECTORY or --html FILE, one of the two")
    if html is None and example:
        raise BertsmithError("--example is for --html")
    if html is None and dtype is not None:
        raise BertsmithError("--dtype is for --html; an ONNX graph has float32 weights")
    if html is not None and overwrite:
        raise BertsmithError("--overwrite is for --onnx; --html replaces the file that it names")
    bert = shared.open_model(model, "cpu", "float32", family)
    if html is not None:
        title = Path(model).resolve().name
        done = bert.explorer(html, dtype=dtype or "int8", name=title, examples=example or [])
    else:
        from bertsmith.checkpoint import export_model

        assert onnx is not None
        done = export_model(
            onnx,
            bert.checkpoint,
            bert.tokenizer,
            bert.sentence,
            longest=bert.max_length,
            overwrite=overwrite,
        )
    shared.output(as_json, [done], lambda: _show(done))


def _show(done: dict[str, Any]) -> None:
    typer.echo(f"written to {done['out']}, {done['bytes'] / 2**20:.1f} MiB")
    if "panels" in done:
        typer.echo(f"panels: {', '.join(done['panels'])}; open the file in a browser")
        return
    typer.echo(f"inputs: {', '.join(done['inputs'])}; outputs: {', '.join(done['outputs'])}")
    worst = max(done["differences"].values())
    lengths = ", ".join(map(str, done["lengths"]))
    typer.echo(f"largest difference from torch {worst:.1e}, at lengths {lengths}")
