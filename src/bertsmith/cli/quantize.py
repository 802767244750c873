"""`bertsmith quantize`: a model in int8, measured beside its float32 original."""

from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import shared, tasks
from bertsmith.cli.declare import option

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
