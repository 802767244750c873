"""`bertsmith finetune`: a data file → a model directory with a report."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertsmith.cli import options as shared
from bertsmith.cli import tasks
from bertsmith.errors import BertsmithError

if TYPE_CHECKING:
    from bertsmith.finetune import Result


@tasks.takes(tasks.COLUMNS, "columns")
def finetune(
    model: shared.Model,
    train: Annotated[Path, typer.Argument(help="A file, or a folder with train and dev files.")],
    out: Annotated[Path, typer.Option(help="The directory to write the model to.")],
    dev: Annotated[Path | None, typer.Option(help="A file to tune on.")] = None,
    test: Annotated[Path | None, typer.Option(help="A file to score on at the end.")] = None,
    task: tasks.Task = None,
    label_names: tasks.LabelNames = None,
    hold_out: Annotated[
        float, typer.Option(help="Share of the training file to tune on, where there is no --dev.")
    ] = 0.1,
    learning_rate: Annotated[float | None, typer.Option(help="At its highest.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the file.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples in a step.")] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Tokens in a window; default: what the model reads.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the head, the order and dropout.")] = None,
    seeds: Annotated[int, typer.Option(help="Train so often, and tell mean and deviation.")] = 1,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Try learning rates × epochs; keep the best.")
    ] = False,
    sweep_rates: Annotated[str, typer.Option(help="Those to try: 1e-5,3e-5")] = "",
    sweep_epochs: Annotated[str, typer.Option(help="Those to try: 2,3,4")] = "",
    warmup: Annotated[float | None, typer.Option(help="Share of steps.")] = None,
    schedule: Annotated[
        str | None, typer.Option(help="linear, cosine, stable or constant.")
    ] = None,
    optimizer: Annotated[str | None, typer.Option(help="adamw or muon.")] = None,
    matrix_learning_rate: Annotated[float | None, typer.Option(help="Muon's.")] = None,
    weight_decay: Annotated[float | None, typer.Option()] = None,
    layer_decay: Annotated[
        float | None, typer.Option(help="Each layer learns slower by this factor.")
    ] = None,
    freeze: Annotated[
        str | None, typer.Option(help="none, embedding, encoder, or a number of lower layers.")
    ] = None,
    reinitialise: Annotated[int | None, typer.Option(help="Top layers to begin anew.")] = None,
    class_weights: Annotated[str | None, typer.Option(help="balanced, or name=2,other=1")] = None,
    focal: Annotated[float | None, typer.Option(help="Focal loss: its gamma.")] = None,
    smoothing: Annotated[float | None, typer.Option(help="Of labels, from 0 to 1.")] = None,
    patience: Annotated[
        int | None, typer.Option(help="Stop after so many epochs without a better score.")
    ] = None,
    keep: Annotated[str | None, typer.Option(help="The best epoch, or the last.")] = None,
    metric: Annotated[str | None, typer.Option(help="The score that decides.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of similarities.")] = None,
    gradient_checkpointing: Annotated[
        bool, typer.Option("--gradient-checkpointing", help="Less memory, more time.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is in --out.")
    ] = False,
    device: shared.Device = None,
    dtype: Annotated[
        str | None, typer.Option(help="float32, or bfloat16 (with float32 weights).")
    ] = None,
    as_json: shared.Json = False,
    columns: Any = None,
) -> None:
    """Fine-tune a model on a file of yours.

    The task and the columns are found out; without --dev a share of the file is held out. The
    directory opens in transformers, and holds report.html.
    """
    from bertsmith.finetune import check_out, read_splits
    from bertsmith.finetune import finetune as train_on

    check_out(out, overwrite)
    splits = read_splits(
        train,
        dev,
        test,
        task=task,
        label_names=tasks.names_of(label_names),
        hold_out=hold_out,
        **tasks.reading(columns),
    )
    result = train_on(
        model,
        splits,
        out,
        seeds=seeds,
        sweep=sweep or bool(sweep_rates or sweep_epochs),
        sweep_rates=_numbers(sweep_rates, float, "--sweep-rates"),
        sweep_epochs=_numbers(sweep_epochs, int, "--sweep-epochs"),
        device=device,
        overwrite=overwrite,
        watch=Progress(tasks.understood(splits.train), quiet=as_json),
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
        max_length=max_length,
        seed=seed,
        warmup=warmup,
        schedule=schedule,
        optimizer=optimizer,
        matrix_learning_rate=matrix_learning_rate,
        weight_decay=weight_decay,
        layer_decay=layer_decay,
        freeze=freeze,
        reinitialise=reinitialise,
        class_weights=class_weights,
        focal=focal,
        smoothing=smoothing,
        patience=patience,
        keep=keep,
        metric=metric,
        temperature=temperature,
        checkpointing=gradient_checkpointing or None,
        dtype=dtype,
    )
    _show(result, as_json)


def _numbers(given: str, kind: type, option: str) -> list[Any]:
    try:
        return [kind(one) for one in given.split(",")] if given else []
    except ValueError:
        raise BertsmithError(f"{option}: {given!r} is not numbers between commas") from None


class Progress:
    """Tells a person how far a run is: a line that changes on a terminal, one each epoch else."""

    def __init__(self, told: Iterable[str], quiet: bool) -> None:
        self.told = iter(told)  # once training has begun: before, a mistake is to stand alone
        self.quiet, self.live = quiet, sys.stderr.isatty() and not quiet
        self.which = ""  # of several runs

    def step(self, done: int, total: int, loss: float) -> None:
        """Show a step, where it can be shown over the last."""
        for line in self.told:
            shared.note(line)
        if self.live and (done % 5 == 0 or done == total):
            line = f"{self.which}step {done:,} of {total:,}, loss {loss:.4f}"
            typer.echo(f"\r{line}  ", err=True, nl=False)

    def epoch(self, row: dict[str, Any]) -> None:
        """Show an epoch's scores."""
        if not self.quiet:
            scores = (f"{name} {tasks.shown(value)}" for name, value in row.items())
            typer.echo(("\r" if self.live else "") + ", ".join(scores), err=True)


def _show(result: Result, as_json: bool) -> None:
    import json

    assert result.out is not None
    if as_json:
        shared.print_json([json.loads((result.out / "report.json").read_text("utf-8"))])
        return
    kept = result.kept
    columns = {
        "dev": None if kept.dev is None else kept.dev.scores,
        "test": None if kept.test is None else kept.test.scores,
    }
    if any(columns.values()):
        tasks.show_scores(columns)
    for split in ("dev", "test"):
        summary = result.summary(split)
        if summary is not None and len(result.seeds) > 1:
            typer.echo(
                f"{split} {result.metric} over {summary.count} seeds: {summary.mean:.4f} ± "
                f"{summary.deviation:.4f} (95 %: {summary.low:.4f} to {summary.high:.4f})"
            )
    for line in [*result.notes, *kept.bert.ledger.lines()]:
        shared.note(line)
    typer.echo(f"{result.task} model in {result.out}; see {result.out / 'report.html'}")
