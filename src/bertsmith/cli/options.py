"""What several verbs take, and how they read texts and show results."""

from __future__ import annotations

import gzip
import json
import lzma
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertsmith.errors import BertsmithError

if TYPE_CHECKING:
    from rich.console import Console

    from bertsmith.tasks import Bert

Model = Annotated[str, typer.Argument(help="A model directory, or a hub id.", show_default=False)]
Texts = Annotated[
    list[str] | None,
    typer.Argument(help="Texts; with none, lines of --file or standard input.", show_default=False),
]
File = Annotated[
    Path | None,
    typer.Option(
        help="A file of texts: a line each, or .jsonl with a `text` key; .gz and .xz too."
    ),
]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; a GPU if there is one by default.")]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16 or float16.")]
Family = Annotated[
    str | None, typer.Option(help="What the model is, where its config.json does not say.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def read_texts(given: list[str] | None, file: Path | None) -> list[str]:
    """The texts of the command line, of a file, or of standard input."""
    if given and file:
        raise BertsmithError("give texts or --file, not both")
    if given:
        return given
    if file is None and sys.stdin.isatty():
        raise BertsmithError("no text: give some, or --file, or pipe lines in")
    texts = list(_lines(file))
    if not texts:
        raise BertsmithError(f"{file or 'standard input'}: there are no lines in it")
    return texts


def _lines(file: Path | None) -> Iterator[str]:
    if file is None:
        yield from (line.rstrip("\r\n") for line in sys.stdin)
        return
    opened: Any = {".gz": gzip.open, ".xz": lzma.open}.get(file.suffix, open)
    inner = file.with_suffix("").suffix if file.suffix in (".gz", ".xz") else file.suffix
    try:
        with opened(file, "rt", encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                yield _field(line, f"{file}:{number}") if inner == ".jsonl" else line.rstrip("\r\n")
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise BertsmithError(f"{file}: cannot be read ({error})") from error
    except UnicodeDecodeError as error:
        raise BertsmithError(f"{file}: not UTF-8 text ({error.reason})") from error


def _field(line: str, where: str) -> str:
    try:
        text = json.loads(line)["text"]
    except (ValueError, KeyError, TypeError) as error:
        raise BertsmithError(f'{where}: not a JSON object with a "text"') from error
    if not isinstance(text, str):
        raise BertsmithError(f'{where}: "text" is not a string')
    return text


def open_model(name: str, device: str | None, dtype: str, family: str | None) -> Bert:
    """Load a model and say what did not fit."""
    from bertsmith.tasks import load

    bert = load(name, device=device, dtype=dtype, family=family)
    for line in bert.checkpoint.report.lines():
        note(line)
    return bert


def close(bert: Bert) -> None:
    """Show the ledger of what was windowed or cut."""
    for line in bert.ledger.lines():
        note(line)


def note(message: str) -> None:
    """Tell a person something beside the result."""
    typer.echo(f"note: {message}", err=True)


def print_json(rows: Iterable[Any]) -> None:
    """One JSON object a line."""
    for row in rows:
        typer.echo(json.dumps(row, ensure_ascii=False))


def console() -> Console:
    """Where tables go."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)
