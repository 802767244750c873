"""`bertsmith evaluate`: score a model on a file, or tell whether one of two is better."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertsmith.cli import options as shared
from bertsmith.cli import tasks
from bertsmith.errors import BertsmithError

if TYPE_CHECKING:
    from bertsmith.tasks.data import Dataset
    from bertsmith.tasks.evaluating import Evaluation

PAIRED = ("similarity", "regression")  # tasks that are scored by how alike two texts are


@tasks.takes(tasks.COLUMNS, "columns")
def evaluate(
    models_and_file: Annotated[
        list[str], typer.Argument(help="MODEL FILE, or MODEL OTHER FILE to compare two.")
    ],
    metric: Annotated[str | None, typer.Option(help="The score to compare by.")] = None,
    draws: Annotated[int, typer.Option(help="Of the bootstrap behind intervals.")] = 1000,
    report: Annotated[Path | None, typer.Option(help="Write a page about it: report.html")] = None,
    label_names: tasks.LabelNames = None,
    device: shared.Device = None,
    dtype: shared.Dtype = "float32",
    as_json: shared.Json = False,
    columns: Any = None,
) -> None:
    """Score a model on a file, or compare two.

    All gold counts. The comparison draws examples anew and asks how often the lead is gone (a
    paired bootstrap).
    """
    from bertsmith.tasks.data import read_data
    from bertsmith.tasks.evaluating import compare, drawable, interval, main_metric
    from bertsmith.tasks.evaluating import evaluate as score
    from bertsmith.tasks.predicting import headless, task_of

    *names, file = models_and_file
    if len(names) not in (1, 2):
        raise BertsmithError("give MODEL FILE, or MODEL OTHER FILE")
    if draws < 1:
        raise BertsmithError(f"--draws is from 1 up, not {draws}")
    found: list[Evaluation] = []
    dataset: Dataset[Any] | None = None
    labels: list[str] = []
    for name in names:
        bert = shared.open_model(name, device, dtype, None)
        if dataset is None:
            task, given = task_of(bert), tasks.columns_of(columns)
            if task == "similarity" and read_data(file, columns=given).task not in PAIRED:
                raise headless(bert)
            dataset = read_data(file, task, columns=given, label_names=tasks.names_of(label_names))
            labels = bert.checkpoint.labels if task == "classification" else []
        found.append(score(bert, dataset))
        shared.close(bert)
    assert dataset is not None
    chosen = metric or main_metric(dataset)
    if chosen not in found[0].scores or chosen == "count":
        known = ", ".join(name for name in found[0].scores if name != "count")
        raise BertsmithError(f"there is no score {chosen!r}; there are: {known}")
    rows: dict[str, Any] = {
        "file": str(file),
        "task": dataset.task,
        "metric": chosen,
        "models": [{"model": n, "scores": one.scores} for n, one in zip(names, found, strict=True)],
    }
    drawn = drawable(found[0], chosen)
    if len(found) == 2:
        if not drawn:
            raise BertsmithError(f"two models cannot be compared by {chosen}")
        rows["comparison"] = asdict(compare(found[0], found[1], chosen, draws))
    elif drawn:
        rows["interval"] = asdict(interval(found[0], chosen, labels, draws))
    if report is not None:
        from bertsmith.tasks.report import write_evaluation

        write_evaluation(report, found[-1], names[-1], chosen)
    if as_json:
        shared.print_json([rows])
    else:
        _show(rows, names, found)
        shared.note(tasks.told(dataset.columns))


def _show(rows: dict[str, Any], names: list[str], found: list[Evaluation]) -> None:
    heads = [Path(name).name or name for name in names]
    if len(set(heads)) < len(heads):
        heads = names
    tasks.show_scores({head: one.scores for head, one in zip(heads, found, strict=True)})
    if one := rows.get("interval"):
        typer.echo(f"{rows['metric']}: 95 % interval {one['low']:.4f} to {one['high']:.4f}")
    if two := rows.get("comparison"):
        verdict = "no difference that chance could not make"
        if two["p_value"] < 0.05:
            verdict = f"{heads[two['difference'] > 0]} is better"
        typer.echo(
            f"{rows['metric']}: {heads[1]} less {heads[0]} is {two['difference']:+.4f} "
            f"(95 %: {two['low']:+.4f} to {two['high']:+.4f}), p = {two['p_value']:.3g}: {verdict}"
        )
    for note in dict.fromkeys(note for one in found for note in one.notes):
        shared.note(note)
