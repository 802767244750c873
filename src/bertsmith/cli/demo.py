"""`bertsmith demo`: the whole journey in minutes on a CPU, with a page to keep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bertsmith.cli import options as shared


def demo(
    out: Annotated[Path, typer.Option(help="The folder to make.")] = Path("demo"),
    text: Annotated[
        Path | None, typer.Option(help="A folder of .txt, .md or .rst files to learn from.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Under a minute and a half; it learns less.")
    ] = False,
    as_json: shared.Json = False,
) -> None:
    """See the whole journey in under five minutes, on a CPU.

    From text that every Python carries it learns a vocabulary, pre-trains a small BERT,
    fine-tunes a classifier and a tagger, and looks inside. It ends with OUT/index.html.
    """
    from bertsmith.demo.folder import check

    check(out, text)
    try:  # torch takes seconds to import, in which a person may change their mind too
        from rich.console import Console

        from bertsmith.demo.journey import run
        from bertsmith.demo.pace import FULL, QUICK

        pace = QUICK if quick else FULL
        story = run(out, text, pace, Console(highlight=False, quiet=as_json))
    except KeyboardInterrupt:
        typer.echo(f"stopped; the same command makes {out} anew", err=True)
        raise typer.Exit(130) from None
    if as_json:
        shared.print_json([story.described()])
