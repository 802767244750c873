"""`bertsmith demo`: pre-train, fine-tune and inspect a small BERT in minutes on a CPU."""

from pathlib import Path

import typer

from bertsmith.cli import shared
from bertsmith.cli.declare import flag, option


def demo(
    out: Path = option(Path("demo"), "The folder to write."),
    text: Path | None = option(None, "A folder of .txt, .md or .rst files to train on."),
    quick: bool = flag("--quick", "Take half the time; the models are worse."),
    as_json: shared.Json = False,
) -> None:
    """Train and inspect a small BERT in a few minutes on a CPU.

    Trains a vocabulary on the docstrings of Python's library, pre-trains a small BERT, fine-tunes a
    classifier and a tagger, and inspects the model. The result is a page, OUT/index.html.
    """
    from bertsmith.demo.folder import check

    check(out, text)
    try:  # torch takes seconds to import, in which a person may change their mind too
        from rich.console import Console

        from bertsmith.demo.budget import FULL, QUICK
        from bertsmith.demo.run import run

        budget = QUICK if quick else FULL
        results = run(out, text, budget, Console(highlight=False, quiet=as_json))
    except KeyboardInterrupt:
        typer.echo(f"stopped; the same command starts again in {out}", err=True)
        raise typer.Exit(130) from None
    if as_json:
        shared.print_json([results])
