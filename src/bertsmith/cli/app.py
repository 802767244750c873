"""The program `bertsmith`: all verbs in sections, and one-line errors."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from itertools import chain
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bertsmith import __version__
from bertsmith.cli import shared
from bertsmith.cli.declare import verb
from bertsmith.errors import BertsmithError
from bertsmith.files import cause

# A full disk, a limit on the size of files, a quota, a broken device.
UNWRITABLE = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO}
LONGEST = 900  # characters of an error message, which may repeat what is in a file
# What completes words in a shell doubles the time that help takes: it is there when asked for.
COMPLETION = {"--install-completion", "--show-completion"}
# The verbs in the order in which people need them.
SECTIONS = {
    "Start": ["demo"],
    "Data": ["tokenizer", "prepare", "check", "label", "learning-curve"],
    "Train": [
        *("recipes", "plan", "pretrain", "runs", "finetune", "evaluate", "distill"),
        *("glue", "squad", "conll", "compare"),
    ],
    "Use": ["predict", "fill-mask", "embed", "follows", "serve", "push"],
    "Search": ["index", "search", "evaluate-search", "mine", "adapt", "mcp"],
    "Inspect": ["attention", "heads", "ablate", "importance", "lens", "probe", "cka", "senses"],
    "System": ["doctor", "convert", "quantize", "export", "verify-resume"],
}
# Verbs whose function is in the file of another; the others have a file of their own name.
HOMES = {
    **dict.fromkeys(("recipes", "plan", "verify-resume"), "pretrain"),
    **dict.fromkeys(("glue", "squad", "conll"), "benchmarks"),
}
# The base of all mistakes in a command line; typer has its own copy of click since 0.2x.
UsageError: Any = typer.BadParameter.__base__
FIRST = os.environ.get("RANK", "0") == "0"  # of several processes the first one speaks


class Verbs(TyperGroup):
    """The verbs, listed by section in --help."""

    def invoke(self, ctx: Any) -> Any:
        """Run a verb. Ctrl-C is one line, which says how to continue where that is possible."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:  # typer would end without a word
            if not stop.args:
                _say("interrupted")
            elif FIRST:
                message = BertsmithError(*stop.args).for_command_line()
                typer.echo(f"\nbertsmith: {message}", err=True)
            raise typer.Exit(130) from None

    def list_commands(self, ctx: Any) -> list[str]:
        """All verbs in the order of the sections."""
        return list(chain.from_iterable(SECTIONS.values()))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """A list for each section."""
        for section, verbs in SECTIONS.items():
            commands: list[tuple[str, Any]] = [
                (name, self.get_command(ctx, name)) for name in verbs
            ]
            rows = [(name, command.get_short_help_str(limit=66)) for name, command in commands]
            with formatter.section(section):
                formatter.write_dl(rows)


app = typer.Typer(
    name="bertsmith",
    cls=Verbs,
    help="Pre-train, fine-tune, inspect and serve BERT-family encoders.",
    epilog="bertsmith COMMAND --help describes a command; --install-completion sets up your shell.",
    no_args_is_help=True,
    add_completion="_BERTSMITH_COMPLETE" in os.environ or not COMPLETION.isdisjoint(sys.argv),
    add_help_option=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help is read as well, and comes twice as fast
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name in chain.from_iterable(SECTIONS.values()):
    _function = _name.replace("-", "_")
    _file = import_module(f"bertsmith.cli.{HOMES.get(_name, _function)}")
    if hasattr(_file, "app"):  # several verbs under one name
        app.add_typer(_file.app, name=_name)
    else:
        app.command(_name)(verb(getattr(_file, _function)))


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bertsmith {__version__}")
        raise typer.Exit


@app.callback()
def bertsmith(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
    help: shared.Help = False,
) -> None:
    """Pre-train, fine-tune, inspect and serve BERT-family encoders."""


def main() -> None:
    """Run a verb; a person's mistake is one line on standard error and exit status 2."""
    _fill_closed_streams()
    if not sys.warnoptions:  # libraries warn programmers; what a person must know is a note
        warnings.simplefilter("ignore")
    if not FIRST:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may not know every character
    status: int | str | None = 0
    try:
        status = app(prog_name="bertsmith", standalone_mode=False)
    except SystemExit as stop:
        # typer ends with status 1 where nobody reads on, as in `| head`: that is no mistake.
        status = 0 if type(sys.stdout).__name__ == "PacifyFlushWrapper" else stop.code
    except UsageError as error:
        status = _show_usage_error(error)
    except BertsmithError as error:
        status = _say(error.for_command_line())
    except (typer.Abort, KeyboardInterrupt):
        status = _say("interrupted", 130)
    except BrokenPipeError:
        status = 0
    except OSError as error:
        if error.filename:  # a name that is too long, a disk that is full, a missing permission
            status = _say(f"{error.filename}: {cause(error)}")
        elif error.errno in UNWRITABLE:
            status = _say(f"standard output cannot be written ({cause(error)})")
        else:
            raise
    sys.exit(_flushed(status))


def _fill_closed_streams() -> None:
    """What a shell closed, as with >&-, is the null device: writing to it is no mistake.

    Lowest first, so that each gets its own descriptor, which a file of ours could get otherwise.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - open until the end


def _say(message: str, status: int = 2) -> int:
    """A mistake on one line of standard error, which may be closed as well."""
    line = " ".join(message.split())
    line = line if len(line) <= LONGEST else f"{line[:LONGEST]}…"
    with suppress(OSError):
        typer.echo(f"bertsmith: {line}", err=True)
    return status


def _flushed(status: int | str | None) -> int | str | None:
    """Write what is still held back; Python would complain of a full or closed output later."""
    try:
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        pass
    except (OSError, ValueError) as error:
        status = status or _say(f"standard output cannot be written ({cause(error)})")
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _show_usage_error(error: Any) -> int:
    """An unknown verb or option, a missing argument or a value out of range, on one line."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return 2
    message = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
    verb = error.ctx.command_path if error.ctx is not None else "bertsmith"
    typer.echo(f"bertsmith: {message}; see {verb} --help", err=True)
    return 2
