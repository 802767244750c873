"""`bertsmith check`: lint data files before training on them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bertsmith.cli import inspection, shared, tasks
from bertsmith.cli.declare import option
from bertsmith.errors import BertsmithError

if TYPE_CHECKING:
    from bertsmith.label.errors import WrongLabels
    from bertsmith.tasks.check import CheckReport, Finding
    from bertsmith.tasks.dataset import Dataset

MOST = 20  # labels that the table shows
LABELS = {"label", "score", "answers", "tags"}  # roles of columns that a test file may lack


def check(
    train: Path = tasks.TRAIN,
    dev: Path | None = option(None, "Development data, compared with the training data."),
    test: Path | None = option(None, "Test data, compared with the training data."),
    task: tasks.Task = None,
    model: str | None = option(
        None,
        "Check lengths and vocabulary for this model, and find labels that are probably wrong.",
    ),
    report: Path | None = option(
        None, "With --model, write a page to decide about labels that are probably wrong."
    ),
    out: Path | None = option(
        None, "With --model, write those rows as decisions to leave them out: .jsonl."
    ),
    device: shared.Device = None,
    label_names: tasks.LabelNames = None,
    as_json: shared.Json = False,
    columns: Any = tasks.COLUMNS,
) -> None:
    """Lint data files: labels, duplicates, leaks, lengths and tags.

    With --model, labels that are probably wrong are listed, too.
    """
    from bertsmith.tasks.check import check as lint
    from bertsmith.tasks.check import open_reader
    from bertsmith.tasks.splits import split_sources

    files = split_sources(train, dev, test)
    splits = _read(files, task, tasks.reading(columns), label_names)
    if model is None and (report or out):
        raise BertsmithError("--report and --out are for labels that --model finds")
    checked = lint(splits, None if model is None else open_reader(model))
    wrong = None if model is None else _wrong(model, splits["train"], device)
    if wrong is not None and report is not None:
        wrong.save(report)
    if wrong is not None and out is not None:
        wrong.write(out)
    shared.output(
        as_json,
        [_plain(checked) | ({} if wrong is None else {"wrong_labels": wrong.rows()})],
        lambda: _show(checked, wrong, (report, out)),
    )
    if checked.errors:
        raise typer.Exit(1)


def _wrong(model: str, train: Dataset[Any], device: str | None) -> WrongLabels | None:
    from bertsmith.label.errors import find_wrong_labels

    try:
        return find_wrong_labels(model, train, device=device)
    except BertsmithError as error:
        shared.note(f"wrong labels were not looked for: {error.for_command_line()}")
        return None


def _read(
    files: dict[str, tuple[Any, str | None]],
    task: str | None,
    reading: dict[str, Any],
    label_names: str | None,
) -> dict[str, Dataset[Any]]:
    """Every split; the others are of the task that the first is of."""
    from bertsmith.tasks.read import read_data

    reading["label_names"] = tasks.names_of(label_names)
    splits: dict[str, Dataset[Any]] = {}
    for name, (source, split) in files.items():
        chosen = {**reading, "split": split or reading["split"]}
        try:
            splits[name] = read_data(source, task, **chosen)
        except BertsmithError:
            # A test file may have no labels, and so not the column that a person named.
            columns = {r: c for r, c in reading["columns"].items() if r not in LABELS}
            if name != "test" or columns == reading["columns"]:
                raise
            splits[name] = read_data(source, task, **chosen | {"columns": columns})
        task, reading["separator"] = splits[name].task, splits[name].separator
    return splits


def _plain(report: CheckReport) -> dict[str, Any]:
    splits = {
        name: {
            "file": str(dataset.path),
            "examples": len(dataset),
            "with_gold": len(dataset.gold()),
            "columns": dataset.columns,
            "unused": list(dataset.unused),
            "scheme": dataset.scheme,
            "labels": report.counts[name],
            "lengths": asdict(report.lengths[name]),
            "ledger": dict(dataset.ledger.counts),
        }
        for name, dataset in report.splits.items()
    }
    findings = [
        {**asdict(finding), "where": [str(place) for place in finding.where]}
        for finding in report.findings
    ]
    train = report.splits["train"]
    about = {"task": train.task, "guessed": train.guessed or None}
    return about | {"splits": splits, "findings": findings}


def _show(report: CheckReport, wrong: WrongLabels | None, outputs: tuple[Path | None, ...]) -> None:
    from rich.text import Text

    console = shared.console()
    for line in tasks.understood(report.splits["train"]):
        typer.echo(line)
    unit = next(iter(report.lengths.values())).unit
    rows = []
    for name, dataset in report.splits.items():
        seen = report.lengths[name]
        sizes = (len(dataset), len(report.counts[name]), seen.median, seen.most, seen.longest)
        rows.append((name, *(f"{size:,}" for size in sizes)))
    tasks.show_table(("", "examples", "labels", f"median {unit}", "95 %", "longest"), rows)
    _show_labels(report)
    for name, dataset in report.splits.items():
        for line in dataset.ledger.lines():
            shared.note(f"{name}: {line}")
    colours = {"error": "bold red", "warning": "yellow", "note": "dim"}
    for finding in report.findings:
        advice = f" - {finding.advice}" if finding.advice else ""
        mark = (f"{finding.severity:8}", colours[finding.severity])
        console.print(Text.assemble(mark, f"{finding.what}{advice}"))
        if finding.where:
            console.print(Text(f"        {_places(finding)}", style="dim"))
    if wrong is not None:
        _show_wrong(wrong)
    kinds = [finding.severity for finding in report.findings]
    total = ", ".join(f"{kind}s: {kinds.count(kind)}" for kind in colours)
    typer.echo(total if kinds else "no findings")
    if wrong is not None:
        inspection.written(*outputs)


def _show_wrong(wrong: WrongLabels) -> None:
    typer.echo(f"labels that are probably wrong: {len(wrong.suspects):,} of {wrong.labels:,}")
    rows = [
        (
            suspect.example.where.number,
            shared.clipped(" ".join(suspect.example.texts), 60),
            shared.clipped(", ".join(suspect.words) or tasks.shown(row["label"]), 40),
            "" if suspect.words else shared.clipped(tasks.shown(row["suggestion"]), 30),
            f"{suspect.confidence:.2f}",
        )
        for suspect, row in zip(wrong.suspects[:MOST], wrong.rows(), strict=False)
    ]
    if rows:
        unit = wrong.suspects[0].example.where.unit
        heads = (unit, "text", "label", "likelier", "probability of the label")
        tasks.show_table(heads, rows, left=True)
    if len(wrong.suspects) > MOST:
        typer.echo(f"and {len(wrong.suspects) - MOST:,} more; --report writes a page with all")


def _places(finding: Finding) -> str:
    first, *others = finding.where
    more = " ..." if finding.count > len(finding.where) else ""
    return ", ".join([str(first), *(str(place.number) for place in others)]) + more


def _show_labels(report: CheckReport) -> None:
    counts = report.counts.values()
    names = list(dict.fromkeys(label for split in counts for label in split))
    if not names:
        return
    rows = [
        (shared.clipped(label, 40), *(f"{split.get(label, 0):,}" for split in counts))
        for label in names[:MOST]
    ]
    tasks.show_table(("label", *report.counts), rows)
    if len(names) > MOST:
        typer.echo(f"and {len(names) - MOST:,} more labels; --json has all")
