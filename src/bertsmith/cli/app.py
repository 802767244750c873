"""All verbs in one program, and how it speaks of mistakes."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from bertsmith import __version__
from bertsmith.cli import convert, demo, doctor, embed, fill_mask, tokenizer
from bertsmith.errors import BertsmithError

app = typer.Typer(
    name="bertsmith",
    help="Forge, fine-tune, look inside and serve a BERT of your own.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help is read as well, and comes twice as fast
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.add_typer(tokenizer.app, name="tokenizer")
app.command("fill-mask")(fill_mask.fill_mask)
app.command("embed")(embed.embed)
app.command("convert")(convert.convert)
app.command("doctor")(doctor.doctor)


@app.callback()
def bertsmith(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Forge, fine-tune, look inside and serve a BERT of your own."""
    if version:
        typer.echo(f"bertsmith {__version__}")
        raise typer.Exit


def main() -> None:
    """Run a verb; a person's mistake is one line on standard error and exit status 2."""
    try:
        app()
    except BertsmithError as error:
        _say(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        _say("stopped")
        sys.exit(130)
    except BrokenPipeError:  # the reader has seen enough: `bertsmith ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _say(message: str) -> None:
    typer.echo(f"bertsmith: {' '.join(message.split())}", err=True)
