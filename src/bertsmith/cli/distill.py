"""`bertsmith distill`: a teacher → a smaller student, or static vectors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from bertsmith.cli import options as shared
from bertsmith.cli import tasks
from bertsmith.cli.declare import argument, flag, option, takes
from bertsmith.cli.finetune import SETTINGS, Progress
from bertsmith.errors import BertsmithError
from bertsmith.numbers import parse_whole

if TYPE_CHECKING:
    from bertsmith.distilling import Distilled

# Settings of fine-tuning that mean the same here.
NAMES = (
    *("learning_rate", "epochs", "batch_size", "max_length", "seed", "warmup", "schedule"),
    *("optimizer", "matrix_learning_rate", "weight_decay", "layer_decay", "freeze", "patience"),
    *("keep", "metric", "dtype"),
)


@takes({name: SETTINGS[name] for name in NAMES}, "settings")
@takes(tasks.COLUMNS, "columns")
def distill(
    teacher: str = argument(..., "The teacher: a model directory, bertsmith-small, or a hub id."),
    data: str | None = argument(None, "Texts to train on; labels are not needed."),
    out: Path = option(..., "The directory to write the student to."),
    to: Literal["layers", "static"] = option(
        "layers", "The student: layers of the teacher, or static vectors."
    ),
    layers: str | None = option(
        None, "Layers that the student keeps: a number, or 0,2,4 [default: half of them]."
    ),
    student: str | None = option(None, "Another model as the student, instead of layers."),
    learn: Literal["task", "vectors"] | None = option(
        None, "What the student learns [default: the teacher's task, if it has a head for one]."
    ),
    dev: Path | None = option(None, "A labelled file to choose the epoch on."),
    test: Path | None = option(None, "A labelled file to score on."),
    temperature: float = option(2.0, "Temperature of the teacher's probabilities."),
    labels: float = option(0.0, "Weight of the file's own labels, from 0 (not read) to 1."),
    loss: Literal["cosine", "mse"] = option(
        "cosine", "Loss between the vectors of student and teacher."
    ),
    hold_out: float = option(0.1, "Fraction of the texts to choose the epoch on, without --dev."),
    width: int = option(256, "Dimensions of static vectors (principal components)."),
    smoothing: float = option(1e-4, "Constant a of the token weights a / (a + frequency)."),
    recipe: str | None = option(
        None, "For a prepared corpus: distilbert, minilm or a file [default: distilbert]."
    ),
    changes: list[str] | None = option(
        None, "Change a key of the recipe: train.steps=2000.", "--set"
    ),
    view: str | None = option(None, "Progress view of a run by recipe: live, lines or none."),
    settings: Any = None,
    resume: bool = flag("--resume", "Continue the interrupted run of the same command."),
    overwrite: shared.Overwrite = False,
    device: shared.Device = None,
    as_json: shared.Json = False,
    columns: Any = None,
) -> None:
    """Train a smaller or faster student of a model.

    A fine-tuned teacher labels the texts, and the student learns its probabilities; a sentence
    encoder's student learns its vectors. On a corpus that `bertsmith prepare` wrote, the student is
    pre-trained by a recipe (DistilBERT's, MiniLM's). `--to static` needs no data: every entry of
    the vocabulary is encoded alone. Student and teacher are measured side by side.
    """
    from bertsmith.distilling import distill as make
    from bertsmith.finetuning import Interrupted

    try:
        result = make(
            teacher,
            data,
            out,
            to=to,
            layers=_layers(layers),
            student=student,
            learn=learn,
            dev=dev,
            test=test,
            temperature=temperature,
            labels=labels,
            loss=loss,
            hold_out=hold_out,
            width=width,
            smoothing=smoothing,
            recipe=recipe,
            changes=changes or (),
            show=view,
            reading=tasks.reading(columns),
            device=device,
            overwrite=overwrite,
            resume=resume,
            watch=Progress((), quiet=as_json),
            **{name: value for name, value in settings.items() if value is not None},
        )
    except Interrupted as stop:
        typer.echo(f"\nbertsmith: {stop}", err=True)
        raise typer.Exit(130) from None
    _show(result, as_json)


def _layers(text: str | None) -> int | list[int] | None:
    """A number of layers, or which ones."""
    if text is None:
        return None
    numbers = [parse_whole(one) for one in text.split(",")]
    if None in numbers:
        raise BertsmithError(f"--layers must be a number or a list like 0,2,4, not {text[:60]!r}")
    whole = [one for one in numbers if one is not None]
    return whole[0] if "," not in text else whole


def _show(result: Distilled, as_json: bool) -> None:
    if os.environ.get("RANK", "0") != "0":  # of several processes, the first speaks
        return
    if as_json:
        shared.print_json([result.to_dict()])
        return
    content = result.content
    tasks.show_table(("", "teacher", "student"), content["table"])
    for split, one in (content.get("comparison") or {}).items():
        kept = f"{one['kept']:.1%} kept" if one["kept"] is not None else "not comparable"
        typer.echo(
            f"{split} {one['metric']}: student less teacher is {one['difference']:+.4f} "
            f"(95 %: {one['low']:+.4f} to {one['high']:+.4f}), p = {one['p_value']:.3g}; {kept}"
        )
    for note in result.notes:
        shared.note(note)
    typer.echo(f"student in {result.out}; distill.json has all numbers")
