"""Options shared by several verbs, reading of texts, and printing of results."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bertsmith.cli.declare import Options
from bertsmith.cli.terminal import console as console
from bertsmith.cli.terminal import progress as progress
from bertsmith.errors import BertsmithError, printable
from bertsmith.numbers import counted

if TYPE_CHECKING:
    from bertsmith.bert import Bert
    from bertsmith.tasks.read import Data

OWN = "bertsmith-small, bertsmith-classic, bertsmith-embed"  # models that come with the package
TEXT_FILES = "Files (.txt, .md, .rst, .jsonl, .parquet; also .gz, .xz, .zst), or folders of them."
TOKENIZER_HELP = f"A model directory, {OWN}, or a tokenizer file."

Model = Annotated[str, typer.Argument(help=f"A model directory, {OWN}, or a hub id.")]
Texts = Annotated[
    list[str] | None,
    typer.Argument(help="Texts; without any (or with -), those of --file or standard input."),
]
File = Annotated[
    Path | None,
    typer.Option(
        help="A file of texts: .txt, .csv, .jsonl, .parquet, .xlsx, ...; .gz, .xz and .zst too."
    ),
]
Device = Annotated[
    str | None,
    typer.Option(help="Device: cpu, or one GPU: cuda, cuda:1, ... [default: GPUs if available]."),
]
Precision = Literal["float32", "bfloat16", "float16", "int8"]
Dtype = Annotated[
    Precision | None,
    typer.Option(
        help="Data type of weights and activations; int8 is for CPUs"
        " [default: float32, or int8 if the model is stored so]."
    ),
]
Family = Annotated[
    str | None, typer.Option(help="The model's family, if config.json has no model_type.")
]
# How a model is loaded: the arguments of `open_model` after its name.
LOADING: Options = {"device": (Device, None), "dtype": (Dtype, None), "family": (Family, None)}


def _show_help(context: typer.Context, wanted: bool) -> None:
    if wanted:
        typer.echo(context.get_help())
        raise typer.Exit


# For groups of verbs, with add_help_option=False: typer's own option, where it is not given,
# loads pydantic to learn that nothing is false, and doubles the time that a verb's help takes.
Help = Annotated[
    bool,
    typer.Option(
        "--help", "-h", help="Show this message and exit.", callback=_show_help, is_eager=True
    ),
]
Log = Annotated[
    list[str] | None,
    typer.Option(help="Also log to tensorboard, wandb (Weights & Biases) or mlflow; repeatable."),
]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace the directory, if bertsmith wrote all files in it."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the interrupted run of the same command.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def open_texts(texts: list[str] | None, file: Path | None, columns: Any = None) -> Data:
    """The texts of the command line, of a file, or of standard input, as a source of data."""
    from bertsmith.cli import tasks
    from bertsmith.data.sources import files_of
    from bertsmith.tasks.read import open_data

    if texts and file:
        raise BertsmithError("give texts or --file, not both")
    if not texts and file is None and sys.stdin.isatty():
        raise BertsmithError("no text: give some, or --file, or pipe lines in")
    if file is not None:
        files_of(file)  # a file that is not there is found before a model is loaded
    source: Any = file or ("-" if texts in (None, [], ["-"]) else texts)
    return open_data(source, "text", **(tasks.reading(columns) if columns else {}))


def read_texts(
    texts: list[str] | None,
    file: Path | None,
    columns: Any = None,
    *,
    limit: int | None = None,
    seed: int = 0,
) -> list[str]:
    """All texts of the command line, of a file, or of standard input.

    With a limit, a random sample of them without blank ones, in the original order.
    """
    from bertsmith.data.tables import draw

    data = open_texts(texts, file, columns)
    lines = list(data.texts() if limit is None else draw(data.texts(), limit, seed))
    report_source(data)
    notes(data.ledger.lines())
    return lines


def report_source(data: Data) -> None:
    """Name the columns that were read, and those that were not."""
    from bertsmith.cli import tasks

    if data.columns and data.names != ("text",):
        note(tasks.columns_line(data.columns))
        if data.unused:
            note(tasks.unused_line(data.unused))


def find_tokenizer(name: Path) -> Path:
    """The file or directory of a tokenizer, which a model of the package has too."""
    if name.exists():
        return name
    from bertsmith.checkpoint import built_in

    if str(name) not in built_in():
        raise BertsmithError(f"{name}: no such file or directory")
    return built_in()[str(name)]


def open_model(
    name: str, device: str | None, dtype: str | None = None, family: str | None = None
) -> Bert:
    """Load a model and say what did not fit."""
    from bertsmith.bert import load
    from bertsmith.cpu import slow_int8

    bert = load(name, device=device, dtype=dtype, family=family)
    notes([*bert.checkpoint.report.lines(), *bert.tokenizer.notes])
    if slow_int8(bert.model):
        _note_slow_int8()
    return bert


@cache  # once in a process
def _note_slow_int8() -> None:
    note("this CPU has no fast int8 instructions: --dtype float32 may be faster (see doctor)")


def named_paths(arguments: Sequence[str]) -> dict[str, str]:
    """Paths by name: each argument is NAME=PATH, or a path whose last part is the name."""
    paths: dict[str, str] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals:
            path = argument
            name = path.rstrip("/").rsplit("/", 1)[-1] or path
        if name in paths:
            raise BertsmithError(f"two models are named {name}: write NAME={path} for one of them")
        if not name or not path:
            raise BertsmithError(f"{argument!r} is not a model: write PATH or NAME=PATH")
        paths[name] = path
    return paths


@contextmanager
def interruptible(state: str) -> Iterator[None]:
    """After Ctrl-C, say in which state the work is."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; {state}") from None


def note(message: str, colour: str | None = None) -> None:
    """Print a note on standard error; of several processes only the first one does."""
    if os.environ.get("RANK", "0") != "0":
        return
    line = " ".join(message.split())
    typer.secho(f"note: {printable(line)}", err=True, fg=colour, bold=bool(colour))


def is_folder_run(source: Path | None, out: Path | None, running: Mapping[str, Any]) -> bool:
    """Whether a folder of files becomes another folder; only then the options of workers count."""
    folders = source is not None and source.is_dir() and out is not None and not out.suffix
    if not folders and (running["workers"] is not None or running["engine"] != "local"):
        raise BertsmithError("--workers and --engine need a folder of .parquet files and --out DIR")
    return folders


def run_folder(
    verb: str, model: str, source: Any, out: Any, options: Mapping[str, Any], as_json: bool
) -> None:
    """Run a verb on all files of a folder, with progress, and report what was done."""
    from bertsmith.bulk import run_folder as run

    with interruptible(f"the same command continues {out}"), progress("files") as show:
        result = run(verb, model, source, out, progress=show, **options)
    before = f"; {result.skipped:,} were there before" if result.skipped else ""
    sizes = f"{counted(result.rows, 'row')} in {counted(result.files, 'file')}"
    line = f"{sizes} written to {out}{before}"
    output(as_json, [vars(result) | {"out": str(out)}], lambda: typer.echo(line))
    result.check()


def output(as_json: bool, rows: Iterable[Any], show: Callable[[], None]) -> None:
    """A result: one JSON object a line for machines, or as it is shown to a person."""
    if as_json:
        print_json(rows)
    else:
        show()


def notes(lines: Iterable[str]) -> None:
    """Print several notes on standard error."""
    for line in lines:
        note(line)


def print_list(about: Mapping[str, str], width: int, as_json: bool) -> None:
    """Print names with what each is about."""
    rows = ({"name": name, "about": text} for name, text in about.items())
    lines = "\n".join(f"{name:{width}} {text}" for name, text in about.items())
    output(as_json, rows, lambda: typer.echo(lines))


def print_json(rows: Iterable[Any]) -> None:
    """One JSON object a line."""
    spelled_out = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    for row in rows:
        typer.echo(json.dumps(row, ensure_ascii=not spelled_out))


def clipped(text: str, most: int) -> str:
    """At most so many characters of a text, safe to show on one line."""
    line = "".join(c if c.isprintable() else " " for c in text[: most + 1])
    return line if len(line) <= most else line[: most - 1] + "…"
