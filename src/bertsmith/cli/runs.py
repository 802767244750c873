"""`bertsmith runs`: results of pre-training runs, side by side."""

from __future__ import annotations

from pathlib import Path

import typer

from bertsmith.cli import inspection, shared, tasks
from bertsmith.cli.declare import argument, option


def runs(
    folders: list[Path] = argument(..., "Folders that `pretrain --out` wrote.", metavar="RUN"),
    html: Path | None = option(
        None, "Write a page: the report of one run, or overlaid curves of several."
    ),
    as_json: shared.Json = False,
) -> None:
    """Show the results of pre-training runs side by side.

    Runs may be unfinished. For several runs, the keys in which their recipes differ are
    listed below their results; branches are shown as a tree.
    """
    inspection.check_out(html)
    from bertsmith.files import write_text
    from bertsmith.pages.runs import compare_runs, read_run, report_page

    compared = compare_runs([read_run(folder) for folder in folders])
    if html is not None:
        alone = len(folders) == 1
        write_text(html, report_page(compared.runs[0]) if alone else compared.html())
    rows = (
        {
            "run": str(run.path),
            "branch": run.branch and {"run": run.branch[0], "step": run.branch[1]},
            **run.measures(),
            "recipe": {key: values[number] for key, values in compared.recipe.items()},
        }
        for number, run in enumerate(compared.runs)
    )

    def show() -> None:
        differences = compared.differences()
        if differences:
            differences.insert(0, ("", []))
        table = [(label, *values) for label, values in compared.rows() + differences]
        tasks.show_table(("run", *compared.names), table, fold=True)
        for line in ["", *tree] if (tree := compared.tree()) else []:
            typer.echo(line)
        inspection.written(html)

    shared.output(as_json, rows, show)
    shared.notes(compared.notes)
