"""All verbs in one program, and how it speaks of mistakes."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from bertsmith import __version__
from bertsmith.cli import (
    ablate,
    attention,
    benchmarks,
    check,
    cka,
    convert,
    demo,
    doctor,
    embed,
    evaluate,
    fill_mask,
    finetune,
    heads,
    importance,
    lens,
    predict,
    prepare,
    pretrain,
    probe,
    runs,
    senses,
    tokenizer,
)
from bertsmith.cli import options as shared
from bertsmith.errors import BertsmithError

# What completes words in a shell doubles the time that help takes: it is there when asked for.
COMPLETION = {"--install-completion", "--show-completion"}
app = typer.Typer(
    name="bertsmith",
    help="Forge, fine-tune and look inside a BERT of your own.",
    epilog="bertsmith --install-completion teaches your shell the verbs and their options.",
    no_args_is_help=True,
    add_completion="_BERTSMITH_COMPLETE" in os.environ or not COMPLETION.isdisjoint(sys.argv),
    add_help_option=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help is read as well, and comes twice as fast
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.add_typer(tokenizer.app, name="tokenizer")
app.command("prepare")(prepare.prepare)
app.command("fill-mask")(fill_mask.fill_mask)
app.command("embed")(embed.embed)
app.command("check")(check.check)
app.command("finetune")(finetune.finetune)
app.command("evaluate")(evaluate.evaluate)
app.command("predict")(predict.predict)
app.command("glue")(benchmarks.glue)
app.command("squad")(benchmarks.squad)
app.command("conll")(benchmarks.conll)
app.command("convert")(convert.convert)
app.command("attention")(attention.attention)
app.command("heads")(heads.heads)
app.command("ablate")(ablate.ablate)
app.command("senses")(senses.senses)
app.command("probe")(probe.probe)
app.command("lens")(lens.lens)
app.command("cka")(cka.cka)
app.command("importance")(importance.importance)
app.command("pretrain")(pretrain.pretrain)
app.command("runs")(runs.runs)
app.command("plan")(pretrain.plan)
app.command("verify-resume")(pretrain.verify_resume)
app.command("recipes")(pretrain.recipes)
app.command("doctor")(doctor.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bertsmith {__version__}")
        raise typer.Exit


@app.callback()
def bertsmith(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
    help: shared.Help = False,
) -> None:
    """Forge, fine-tune and look inside a BERT of your own."""


def main() -> None:
    """Run a verb; a person's mistake is one line on standard error and exit status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may not know every character
    try:
        app()
    except BertsmithError as error:
        typer.echo(f"bertsmith: {' '.join(str(error).split())}", err=True)
        sys.exit(2)
