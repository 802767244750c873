"""`bertsmith embed`: one vector for each text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.cli import options as shared
from bertsmith.errors import BertsmithError

if TYPE_CHECKING:
    from bertsmith.tasks.embedding import Vectors


def embed(
    model: shared.Model,
    texts: shared.Texts = None,
    file: shared.File = None,
    out: Annotated[Path | None, typer.Option(help="Write vectors to .npy or .jsonl.")] = None,
    pooling: Annotated[str | None, typer.Option(help="mean or cls; default: the model's.")] = None,
    normalise: Annotated[
        bool | None, typer.Option(help="Make vectors of length 1; default: the model's.")
    ] = None,
    long: Annotated[str, typer.Option(help="Texts too long: window, refuse or cut.")] = "window",
    device: shared.Device = None,
    dtype: shared.Dtype = "float32",
    family: shared.Family = None,
    as_json: shared.Json = False,
) -> None:
    """Turn texts into vectors."""
    if out is not None and out.suffix not in (".npy", ".jsonl"):
        raise BertsmithError(f"{out}: write to a .npy or a .jsonl file")
    given = shared.read_texts(texts, file)
    bert = shared.open_model(model, device, dtype, family)
    vectors = bert.embed(given, pooling=pooling, normalise=normalise, long=long)
    if out is not None:
        _write(out, given, vectors)
        if as_json:
            shared.print_json([{"out": str(out), "texts": len(given), "width": vectors.shape[1]}])
        else:
            many = "1 vector" if len(given) == 1 else f"{len(given):,} vectors"
            typer.echo(f"{many} of width {vectors.shape[1]} in {out}")
    elif as_json:
        rows = zip(given, vectors, strict=True)
        shared.print_json({"text": text, "vector": vector.tolist()} for text, vector in rows)
    else:
        _show(given, vectors)
    shared.close(bert)


def _write(out: Path, texts: list[str], vectors: Vectors) -> None:
    import numpy as np

    from bertsmith.files import atomic

    if out.suffix == ".npy":
        with atomic(out) as stream:
            np.save(stream, vectors)
        return
    with atomic(out, "w") as lines:
        for text, vector in zip(texts, vectors, strict=True):
            row = {"text": text, "vector": vector.tolist()}
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")


def _show(texts: list[str], vectors: Vectors) -> None:
    """How alike the first texts are; of a single one, how its vector begins."""
    import numpy as np
    from rich.table import Table
    from rich.text import Text

    console = shared.console()
    width, lengths = vectors.shape[1], np.linalg.norm(vectors, axis=1, keepdims=True)
    if len(texts) == 1:
        begin = " ".join(f"{value:.4f}" for value in vectors[0, :4])
        typer.echo(f"a vector of width {width} and length {lengths[0, 0]:.3f}: {begin} …")
        return
    most = max(2, min(10, len(texts), (console.width - 30) // 6))
    near = vectors[:most] / np.maximum(lengths[:most], 1e-12)
    typer.echo(f"{len(texts):,} vectors of width {width}; cosine similarities:")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ["", *(str(number + 1) for number in range(most))]:
        table.add_column(heading, justify="right", min_width=len(heading) and 4, no_wrap=True)
    table.add_column("")
    for number, row in enumerate(near @ near.T):
        shown = Text(shared.clipped(texts[number], console.width - 6 * most - 6))
        table.add_row(str(number + 1), *(f"{value:.2f}" for value in row), shown)
    console.print(table)
    if len(texts) > most:
        typer.echo(f"and {len(texts) - most:,} more; write all with --out vectors.npy")
