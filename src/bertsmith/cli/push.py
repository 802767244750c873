"""`bertsmith push`: a model → a repository of the Hugging Face hub."""

import sys
from pathlib import Path

import typer

from bertsmith.cli import shared
from bertsmith.cli.declare import argument, flag, option


def push(
    run: Path = argument(..., "A model directory, an adapter or a pre-training run."),
    repo: str = argument(..., "The repository of the hub: USER/NAME."),
    public: bool = flag("--public", "Make a new repository public; by default it is private."),
    revision: str | None = option(None, "Upload to this branch, made if it is new."),
    licence: str | None = option(None, "Licence of the model, by its id on the hub: apache-2.0."),
    report: bool = flag("--report", "Also upload reports, which show examples of your data."),
    message: str = option("Upload with bertsmith", "Message of the commit."),
    as_json: shared.Json = False,
) -> None:
    """Upload a model to the Hugging Face hub.

    The model card gets the licence, and the scores of the run as the hub's metadata. Log in with
    `hf auth login`, or set HF_TOKEN.
    """
    from bertsmith.reports.hub import push as upload

    if as_json or not sys.stderr.isatty():
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
    result = upload(
        run, repo, public=public, revision=revision, licence=licence, report=report, message=message
    )
    visibility = "private" if result["private"] else "public"
    line = f"{len(result['files'])} files in {result['url']} ({visibility}, {result['revision']})"
    shared.output(as_json, [result], lambda: typer.echo(line))
    shared.notes(result["notes"])
