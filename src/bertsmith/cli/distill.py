"""`bertsmith distill`: a teacher → a smaller student, or static vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bertsmith.cli import options as shared
from bertsmith.cli import tasks

if TYPE_CHECKING:
    from bertsmith.distill import Distilled


def distill(
    teacher: Annotated[
        str, typer.Argument(help="The teacher: a model directory, bertsmith-small, or a hub id.")
    ],
    out: Annotated[Path, typer.Option(help="The directory to write the student to.")],
    to: Annotated[
        Literal["static"], typer.Option(help="What the student is: static vectors.")
    ] = "static",
    width: Annotated[
        int, typer.Option(help="Dimensions of static vectors (principal components).")
    ] = 256,
    smoothing: Annotated[
        float, typer.Option(help="a of the weights a / (a + frequency) of static vectors.")
    ] = 1e-4,
    overwrite: shared.Overwrite = False,
    device: shared.Device = None,
    dtype: shared.Dtype = "float32",
    as_json: shared.Json = False,
) -> None:
    """Make a smaller or faster student of a model.

    `--to static` needs no data: every entry of the vocabulary is encoded alone.
    """
    from bertsmith.distill import distill as make

    result = make(
        teacher,
        out=out,
        to=to,
        width=width,
        smoothing=smoothing,
        device=device,
        dtype=dtype,
        overwrite=overwrite,
    )
    _show(result, as_json)


def _show(result: Distilled, as_json: bool) -> None:
    from bertsmith.distill.result import rows

    if as_json:
        shared.print_json([result.to_dict()])
        return
    tasks.show_table(("", "teacher", "student"), list(rows(result.content)))
    for note in result.notes:
        shared.note(note)
    typer.echo(f"student in {result.out}; all numbers in {result.out}/distill.json")
