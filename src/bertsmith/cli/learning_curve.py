"""`bertsmith learning-curve`: how many more labels are needed."""

from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import inspection, shared, tasks
from bertsmith.cli.declare import argument, flag, option


def learning_curve(
    model: shared.Model,
    data: Path = argument(..., "Labelled data: a file, or a folder whose training file is read."),
    more: list[int] | None = option(
        None, "Additional labels that are asked about; repeatable [default: 25%, 100%, 400%]."
    ),
    target: float | None = option(None, "A score to estimate the labels for: 0.9, ..."),
    metric: str | None = option(None, "The score [default: the task's main score]."),
    full: bool = flag("--full", "Fine-tune the whole model at every size: 12 runs."),
    report: Path | None = option(None, "Write the curve as a page."),
    task: tasks.Task = None,
    label_names: tasks.LabelNames = None,
    seed: int = option(0, "Seed of folds and of the rows that are learned from."),
    device: shared.Device = None,
    as_json: shared.Json = False,
    columns: Any = tasks.COLUMNS,
) -> None:
    """Forecast what more labels will add to a score.

    The model is scored at growing numbers of the labels that there are, by cross-validation, and a
    power law forecasts the score of more. By default a linear layer learns on the frozen model's
    vectors; --full fine-tunes the model.
    """
    from bertsmith.files import check_writable
    from bertsmith.label.curve import learning_curve as measure
    from bertsmith.tasks.splits import split_sources

    if report is not None:
        check_writable(report)
    source, split = split_sources(data)["train"]
    reading = tasks.reading(columns)
    reading |= {"split": split or reading["split"], "label_names": tasks.names_of(label_names)}
    with shared.progress("models") as bar:
        curve = measure(
            model,
            source,
            task=task,
            metric=metric,
            more=more or (),
            target=target,
            full=full,
            seed=seed,
            device=device,
            progress=lambda done, total: bar("models", done, total, f"{done} of {total} models"),
            **reading,
        )
    if report is not None:
        curve.save(report)

    def show() -> None:
        rows = [
            (f"{p.labels:,}", *(f"{100 * value:.1f}" for value in (p.score, p.low, p.high)))
            for p in curve.points
        ]
        tasks.show_table(("labels", curve.metric.replace("_", " "), "low", "high"), rows)
        for line in curve.lines():
            typer.echo(line)
        inspection.written(report)

    shared.output(as_json, [curve.to_dict()], show)
