"""`bertsmith predict`: a prediction for every example of a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from bertsmith.cli import options as shared
from bertsmith.cli import tasks
from bertsmith.errors import BertsmithError

CHUNK = 512  # examples that are predicted, and written, at once


def predict(
    model: shared.Model,
    file: Annotated[Path, typer.Argument(help="Examples in any known format, or lines of text.")],
    out: Annotated[
        Path | None, typer.Option(help="A .jsonl file; standard output by default.")
    ] = None,
    top: Annotated[int, typer.Option(help="Answers to show of each question.")] = 1,
    explain: Annotated[
        bool, typer.Option("--explain", help="Mark the words that mattered (slower).")
    ] = False,
    column: tasks.Columns = None,
    device: shared.Device = None,
    dtype: shared.Dtype = "float32",
) -> None:
    """Label, tag or answer what is in a file.

    Predictions are JSON lines in the file's order, written as they are made, so that a long file
    can be watched, or piped on.
    """
    from bertsmith.tasks.explaining import explain as why
    from bertsmith.tasks.inputs import read_inputs
    from bertsmith.tasks.predicting import predict as guess
    from bertsmith.tasks.predicting import task_of

    if top < 1:
        raise BertsmithError(f"--top is from 1 up, not {top}")
    bert = shared.open_model(model, device, dtype, None)
    bert.progress = False
    inputs = read_inputs(file, task_of(bert), tasks.columns_of(column))
    with _stream(out) as stream:
        for start in range(0, len(inputs.examples), CHUNK):
            chunk = inputs.examples[start : start + CHUNK]
            for example, one in zip(chunk, guess(bert, chunk, top), strict=True):
                row = _row(example) | one.shown
                if explain:
                    row["explanation"] = why(bert, example, one)
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            stream.flush()
            _progress(start + len(chunk), len(inputs.examples))
    shared.close(bert)


def _row(example: Any) -> dict[str, Any]:
    """What a prediction is about."""
    row = {"id": example.id} if hasattr(example, "id") else {}
    for name in ("text", "pair", "question", "prompt", "anchor", "positive"):
        if (value := getattr(example, name, None)) is not None:
            row[name] = value
    return row


@contextmanager
def _stream(out: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears whole."""
    if out is None:
        yield sys.stdout
        return
    part = out.with_name(f".{out.name}.part")
    try:
        with part.open("w", encoding="utf-8") as stream:
            yield stream
        part.replace(out)
    except OSError as error:
        raise BertsmithError(f"{out}: cannot be written ({error.strerror})") from error
    finally:
        part.unlink(missing_ok=True)


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        typer.echo(f"\r{done:,} of {total:,} examples{end}", err=True, nl=False)
