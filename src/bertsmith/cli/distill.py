"""`bertsmith distill`: a teacher → a smaller student, or static vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import shared, tasks
from bertsmith.cli.declare import argument, option, options_of
from bertsmith.cli.finetune import SETTINGS, TrainingProgress
from bertsmith.errors import BertsmithError
from bertsmith.numbers import parse_whole
from bertsmith.settings.distilling import DistillationSettings

# Settings of fine-tuning that mean the same here.
TRAINING = {
    name: SETTINGS[name]
    for name in (
        *("learning_rate", "epochs", "batch_size", "max_length", "seed", "warmup", "schedule"),
        *("optimizer", "matrix_learning_rate", "weight_decay", "layer_decay", "freeze"),
        *("patience", "keep", "metric", "dtype", "spike", "ema", "parallel", "matryoshka"),
        "budget",
    )
}


def distill(
    teacher: str = argument(..., "The teacher: a model directory, bertsmith-small, or a hub id."),
    data: str | None = argument(None, "Texts to train on; labels are not needed."),
    out: Path = option(..., "The directory to write the student to."),
    own: Any = options_of(DistillationSettings, bounded=False),
    training: Any = TRAINING,
    log: shared.Log = None,
    resume: shared.Resume = False,
    overwrite: shared.Overwrite = False,
    device: shared.Device = None,
    as_json: shared.Json = False,
    columns: Any = tasks.COLUMNS,
) -> None:
    """Train a smaller or faster student of a model.

    A fine-tuned teacher labels the texts, and the student learns its probabilities; a sentence
    encoder's student learns its vectors. On a corpus that `bertsmith prepare` wrote, the student is
    pre-trained by a recipe (DistilBERT's, MiniLM's). `--to static` needs no data: every entry of
    the vocabulary is encoded alone. Student and teacher are measured side by side.
    """
    from bertsmith.distilling import distill as make

    result = make(
        teacher,
        data,
        out,
        reading=tasks.reading(columns),
        device=device,
        overwrite=overwrite,
        resume=resume,
        watch=TrainingProgress((), quiet=as_json),
        log=log or (),
        **own | {"layers": _layers(own["layers"])},
        **{name: value for name, value in training.items() if value is not None},
    )

    def show() -> None:
        tasks.show_table(("", "teacher", "student"), result.content["table"])
        for split, row in (result.content.get("comparison") or {}).items():
            kept = f"{row['kept']:.1%} kept" if row["kept"] is not None else "not comparable"
            typer.echo(
                f"{split} {row['metric']}: student less teacher is {row['difference']:+.4f} "
                f"(95 %: {row['low']:+.4f} to {row['high']:+.4f}), p = {row['p_value']:.3g}; {kept}"
            )
        shared.notes(result.notes)
        typer.echo(f"student in {result.out}; distill.json has all numbers")

    shared.output(as_json, [result.to_dict()], show)


def _layers(text: str | None) -> int | list[int] | None:
    """A number of layers, or which ones."""
    if text is None:
        return None
    numbers = [parse_whole(number) for number in text.split(",")]
    layers = [number for number in numbers if number is not None]
    if len(layers) < len(numbers):
        raise BertsmithError(f"--layers must be a number or a list like 0,2,4, not {text[:60]!r}")
    return layers if "," in text else layers[0]
