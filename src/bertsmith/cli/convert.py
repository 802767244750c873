"""`bertsmith convert`: any readable layout → a safetensors directory."""

from pathlib import Path

import typer

from bertsmith.cli import shared
from bertsmith.cli.declare import argument, option


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
