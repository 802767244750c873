"""`bertsmith embed`: one vector for each text."""

from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import shared, tasks
from bertsmith.cli.declare import option, options_of
from bertsmith.numbers import counted
from bertsmith.settings.folders import FolderSettings

SHOWN = 10  # texts that are compared on the screen


def embed(
    model: shared.Model,
    texts: shared.Texts = None,
    file: shared.File = None,
    out: Path | None = option(
        None, "Write vectors to a .npy, .jsonl or .parquet file, or to a folder."
    ),
    pooling: str | None = option(None, "Pooling: mean or cls [default: the model's]."),
    normalise: bool | None = option(None, "Normalise vectors to length 1 [default: the model's]."),
    long: str = option(
        "window",
        "Texts beyond the model's length: window averages the vectors of all parts, cut "
        "embeds the beginning (faster; what sentence-transformers does), refuse is an error.",
    ),
    prompt: str | None = option(None, 'Text put before each text, such as "query: ".'),
    prompt_name: str | None = option(
        None, "Use the model's prompt of this name: query, document, ..."
    ),
    width: int | None = option(
        None, "Keep this many elements of each vector, for models trained with --matryoshka.", min=1
    ),
    loading: Any = shared.LOADING,
    running: Any = options_of(FolderSettings),
    as_json: shared.Json = False,
    columns: Any = tasks.COLUMNS,
) -> None:
    """Compute a vector for each text.

    Files of any size are processed in chunks. A .npy file
    has a vector for each row; .jsonl and .parquet have the rows too.
    If --file and --out are folders, each .parquet file of the first becomes one of the second;
    the same command continues after an interruption.
    """
    from bertsmith.data.vectors import check_ending, open_vectors
    from bertsmith.files import check_writable
    from bertsmith.tasks.stream import embed_rows

    options: dict[str, Any] = {"pooling": pooling, "normalise": normalise, "long": long}
    options |= {"prompt": prompt, "prompt_name": prompt_name, "width": width}
    if shared.is_folder_run(file, out, running):
        options |= {**loading, **running, **tasks.reading(columns)}
        shared.run_folder("embed", model, file, out, options, as_json)
        return
    if out is not None:
        check_ending(out)
        check_writable(out)
    data = shared.open_texts(texts, file, columns)
    bert = shared.open_model(model, **loading)
    data.ledger = bert.ledger
    count = 0
    first: list[tuple[str, Any]] = []
    with nullcontext() if out is None else open_vectors(out) as writer:
        for portion in embed_rows(bert, data, **options):
            count += len(portion.texts)
            if writer is not None:
                writer.write(portion.rows, portion.vectors)
            elif as_json:
                pairs = zip(portion.texts, portion.vectors.tolist(), strict=True)
                shared.print_json({"text": text, "vector": vector} for text, vector in pairs)
            else:
                pairs = zip(portion.texts, portion.vectors, strict=True)
                first += islice(pairs, SHOWN - len(first))
    if out is not None:
        width = width or bert.vector_width
        row = {"out": str(out), "texts": count, "width": width}
        line = f"{counted(count, 'vector')} of width {width} in {out}"
        shared.output(as_json, [row], lambda: typer.echo(line))
    elif not as_json:
        _show(first, count)
    shared.report_source(data)
    if bert.ledger.counts["long texts read in windows"]:
        shared.note("--long cut reads only the beginning of long texts, which is faster")
    shared.notes(bert.ledger.lines())


def _show(first: list[tuple[str, Any]], count: int) -> None:
    """How alike the first texts are; of a single one, how its vector begins."""
    import numpy as np
    from rich.table import Table
    from rich.text import Text

    console = shared.console()
    vectors = np.stack([vector for _, vector in first])
    width, lengths = vectors.shape[1], np.linalg.norm(vectors, axis=1, keepdims=True)
    if count == 1:
        begin = " ".join(f"{value:.4f}" for value in vectors[0, :4])
        typer.echo(f"a vector of width {width} and length {lengths[0, 0]:.3f}: {begin} …")
        return
    most = max(2, min(len(first), (console.width - 30) // 6))
    near = vectors[:most] / np.maximum(lengths[:most], 1e-12)
    typer.echo(f"{count:,} vectors of width {width}; cosine similarities:")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ["", *(str(number + 1) for number in range(most))]:
        table.add_column(heading, justify="right", min_width=len(heading) and 4, no_wrap=True)
    table.add_column("")
    for number, row in enumerate(near @ near.T):
        shown = Text(shared.clipped(first[number][0], console.width - 6 * most - 6))
        table.add_row(str(number + 1), *(f"{value:.2f}" for value in row), shown)
    console.print(table)
    if count > most:
        typer.echo(f"and {count - most:,} more; write all with --out vectors.npy")
