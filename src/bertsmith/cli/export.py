"""`bertsmith export`: a model as an ONNX graph; a model or a run as a page for a browser."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bertsmith.cli import shared
from bertsmith.cli.declare import flag, option
from bertsmith.errors import BertsmithError


def export(
    model: Annotated[
        str,
        typer.Argument(
            help=f"A model directory, {shared.OWN}, or a hub id; with --html also the folder of a"
            " pre-training run."
        ),
    ],
    onnx: Path | None = option(None, "The directory to write the ONNX graph to."),
    html: Path | None = option(None, "The HTML file to write the explorer to."),
    dtype: Literal["int8", "float16"] | None = option(
        None, "With --html: how the page stores weights; int8 by default."
    ),
    int8: bool = flag("--int8", "With --onnx: quantize the linear layers, for CPUs."),
    example: list[str] | None = option(
        None, "With --html: a text that the page offers to try; repeatable."
    ),
    megabytes: float | None = option(
        None,
        "With --html and a run: how large the page may be; the first steps after 0 are left out"
        " [default: 25].",
        min=0.0,
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

    Of a pre-training run whose recipe has checkpoint.film = true, the page has a slider over the
    steps of the run: it shows all of that at every one of them, with the loss and word neighbours.
    """
    if (onnx is None) == (html is None):
        raise BertsmithError("give --onnx DIRECTORY or --html FILE, one of the two")
    is_run = (Path(model) / "recipe.toml").is_file()
    mistakes = {
        "--example is for --html": onnx and example,
        "--dtype is for --html; --onnx has float32 weights, or with --int8 int8": onnx and dtype,
        "--int8 is for --onnx; --html stores int8 weights by default": html and int8,
        "--overwrite is for --onnx; --html replaces the file that it names": html and overwrite,
        "--megabytes is for --html and the folder of a pre-training run": (
            megabytes is not None and not (html and is_run)
        ),
    }
    for message, applies in mistakes.items():
        if applies:
            raise BertsmithError(message)
    page: dict[str, Any] = {"dtype": dtype or "int8", "examples": example or []}
    page["name"] = Path(model).resolve().name
    if html is not None and is_run:
        from bertsmith.explorer import MEGABYTES, film

        most = MEGABYTES if megabytes is None else megabytes
        summary = film(model, html, megabytes=most, **page)
    elif html is not None:
        summary = shared.open_model(model, "cpu", "float32", family).explorer(html, **page)
    else:
        from bertsmith.checkpoint import export_model

        assert onnx is not None
        bert = shared.open_model(model, "cpu", "float32", family)
        summary = export_model(
            onnx,
            bert.checkpoint,
            bert.tokenizer,
            bert.sentence,
            longest=bert.max_length,
            int8=int8,
            overwrite=overwrite,
        )

    def show() -> None:
        typer.echo(f"written to {summary['out']}, {summary['bytes'] / 2**20:.1f} MiB")
        if "steps" in summary:
            typer.echo(f"steps: {', '.join(map(str, summary['steps']))}")
        if "panels" in summary:
            typer.echo(f"panels: {', '.join(summary['panels'])}; open the file in a browser")
            return
        inputs, outputs = ", ".join(summary["inputs"]), ", ".join(summary["outputs"])
        typer.echo(f"inputs: {inputs}; outputs: {outputs}")
        worst = max(summary["differences"].values())
        lengths = ", ".join(map(str, summary["lengths"]))
        typer.echo(f"largest difference from torch {worst:.1e}, at lengths {lengths}")
        if "int8_cosine" in summary:
            cosine = f"mean cosine {summary['int8_cosine']:.4f}"
            typer.echo(f"int8: {cosine} to float32 on random tokens")

    shared.output(as_json, [summary], show)
