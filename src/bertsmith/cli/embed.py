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
            typer.echo(f"{len(given):,} vectors of width {vectors.shape[1]} in {out}")
    elif as_json:
        rows = zip(given, vectors, strict=True)
        shared.print_json({"text": text, "vector": vector.tolist()} for text, vector in rows)
    else:
        _show(given, vectors)
    shared.close(bert)


def _write(out: Path, texts: list[str], vectors: Vectors) -> None:
    import numpy as np

    try:
        if out.suffix == ".npy":
            np.save(out, vectors)
            return
        with out.open("w", encoding="utf-8") as stream:
            for text, vector in zip(texts, vectors, strict=True):
                row = {"text": text, "vector": vector.tolist()}
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
    except OSError as error:
        raise BertsmithError(f"{out}: cannot be written ({error.strerror})") from error


def _show(texts: list[str], vectors: Vectors, most: int = 10) -> None:
    """The first texts, and how alike they are."""
    import numpy as np
    from rich.markup import escape
    from rich.table import Table

    console = shared.console()
    console.print(f"{len(texts):,} vectors of width {vectors.shape[1]}; cosine similarities:")
    near = vectors[:most] / np.maximum(np.linalg.norm(vectors[:most], axis=1, keepdims=True), 1e-12)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ["", *(str(number + 1) for number in range(len(near))), ""]:
        table.add_column(heading, justify="right")
    for number, row in enumerate(near @ near.T):
        shown = escape(texts[number] if len(texts[number]) < 60 else texts[number][:57] + "...")
        table.add_row(str(number + 1), *(f"{value:.2f}" for value in row), shown)
    console.print(table)
    if len(texts) > most:
        console.print(f"... and {len(texts) - most:,} more; write all with --out FILE.npy")
