"""`bertsmith convert`, `quantize`, `export`, `push`: a model directory in another form or place."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bertsmith.cli import shared, tasks
from bertsmith.cli.declare import argument, flag, option
from bertsmith.errors import BertsmithError


def convert(
    model: shared.Model,
    out: Path = argument(..., "The directory to write."),
    dtype: str | None = option(
        None, "Data type of weights: float32, bfloat16 or float16; default: as stored."
    ),
    family: shared.Family = None,
    overwrite: shared.Overwrite = False,
    as_json: shared.Json = False,
) -> None:
    """Write a model directory in the current layout.

    Reads .bin files, sharded weights and plain vocabulary files. The result is read back and
    compared tensor by tensor.
    """
    from bertsmith.checkpoint import convert as rewrite
    from bertsmith.infer.loaded import pick_dtype

    kind = pick_dtype(dtype) if dtype else None
    done = rewrite(model, out, dtype=kind, family=family, overwrite=overwrite)

    def show() -> None:
        parameters = f"{done['tensors']} tensors, {done['parameters']:,} parameters"
        typer.echo(f"{done['family']}: {parameters}")
        typer.echo(f"heads: {', '.join(done['heads']) or 'none'}")
        typer.echo(f"written to {done['out']} as {done['dtype']}, {done['bytes'] / 2**20:.1f} MiB")
        typer.echo(f"read back: largest difference {done['largest_difference']:.1e}")
        shared.notes(done["notes"])

    shared.output(as_json, [done], show)


SHOWN = 8  # layers in the table, if none stay in float32


def quantize(
    model: shared.Model,
    out: Path = option(..., "The directory to write."),
    data: Path | None = option(
        None, "A file to compare both models on: labelled rows, or texts alone."
    ),
    at_most: float | None = option(
        None,
        "Points of the score that may be lost on --data: a point estimate, whatever its interval. "
        "Layers with the largest errors stay in float32 until the bound holds; if it never does, "
        "nothing is written.",
    ),
    limit: int = option(0, "Compare on a sample of this many examples; 0: all.", min=0),
    overwrite: shared.Overwrite = False,
    as_json: shared.Json = False,
    columns: Any = tasks.COLUMNS,
) -> None:
    """Write a model with int8 weights, for fast inference on a CPU.

    With --data both models are scored on the file, and the difference is shown with its paired
    interval. Without labels their predictions or vectors are compared.
    """
    from bertsmith.reports.quantize import quantize as write

    reading = tasks.reading(columns)
    result = write(
        model, out, data=data, at_most=at_most, limit=limit, overwrite=overwrite, **reading
    )

    def show() -> None:
        before, after = result.megabytes
        typer.echo(f"written to {result.out}: {before:.1f} MB in float32, {after:.1f} MB in int8")
        layers = result.layers[: max(SHOWN, len(result.float32))]
        rows = [(layer.layer, f"{layer.error:.2%}", layer.dtype) for layer in layers]
        tasks.show_table(("layer", "error in int8", "dtype"), rows, left=True)
        if more := len(result.layers) - len(layers):
            typer.echo(f"layers with smaller errors, all int8: {more}")
        if (proof := result.proof) is None:
            shared.note("not compared with float32; --data FILE does it")
            return
        if scores := proof.scores:
            typer.echo(
                f"{proof.measure} on {proof.examples:,} examples: float32 {scores['float32']:.4f}, "
                f"int8 {scores['int8']:.4f}, difference {scores['difference']:+.4f} "
                f"(95 % interval {scores['low']:+.4f} to {scores['high']:+.4f})"
            )
        if proof.agreement is not None:
            typer.echo(f"equal predictions: {proof.agreement:.2%} of {proof.examples:,}")
        if proof.largest_change is not None:
            typer.echo(f"largest change of a prediction: {proof.largest_change:.4f}")
        mean, minimum = proof.cosine["mean"], proof.cosine["minimum"]
        typer.echo(f"cosine to float32: mean {mean:.4f}, minimum {minimum:.4f}")
        if near := proof.neighbours:
            typer.echo(
                f"retrieval: {near['first']:.1%} of texts keep their nearest neighbour, "
                f"{near['shared']:.1%} of the {near['of']:.0f} nearest are the same"
            )

    shared.output(as_json, [result.to_dict()], show)


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


def push(
    run: Path = argument(..., "A model directory, an adapter or a pre-training run."),
    repo: str = argument(..., "The repository of the hub: USER/NAME."),
    public: bool = flag("--public", "Make a new repository public; by default it is private."),
    revision: str | None = option(None, "Upload to this branch, made if it is new."),
    licence: str | None = option(None, "Licence of the model, by its id on the hub: apache-2.0."),
    report: bool = flag("--report", "Also upload reports, which show examples of your data."),
    message: str = option("Upload with bertsmith", "Message of the commit."),
    as_json: shared.Json = False,
) -> None:
    """Upload a model to the Hugging Face hub.

    The model card gets the licence, and the scores of the run as the hub's metadata. Log in with
    `hf auth login`, or set HF_TOKEN.
    """
    from bertsmith.reports.hub import push as upload

    if as_json or not sys.stderr.isatty():
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
    result = upload(
        run, repo, public=public, revision=revision, licence=licence, report=report, message=message
    )
    visibility = "private" if result["private"] else "public"
    line = f"{len(result['files'])} files in {result['url']} ({visibility}, {result['revision']})"
    shared.output(as_json, [result], lambda: typer.echo(line))
    shared.notes(result["notes"])
