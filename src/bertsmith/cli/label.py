"""`bertsmith label`: make labels in the browser, or list which texts to label next."""

import os
import sys
import webbrowser
from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import shared, tasks
from bertsmith.cli.declare import argument, flag, option, options_of
from bertsmith.cli.serve import access, address_of
from bertsmith.errors import BertsmithError
from bertsmith.numbers import counted
from bertsmith.settings.labelling import LabellingSettings


def label(
    data: Path = argument(..., "A file of texts, or of rows that the task reads."),
    out: Path = option(..., "The file of labels, .jsonl; it is made, or continued."),
    task: tasks.Task = None,
    labels: str | None = option(None, "The labels to choose from, between commas."),
    model: str | None = option(
        None, "An encoder that learns from the labels, or a finished model [bertsmith-embed]."
    ),
    settings: Any = options_of(LabellingSettings),
    count: int | None = option(
        None, "List this many texts to label next instead of opening the page.", "--next", min=1
    ),
    agreement: bool = flag("--agreement", "Show how far people agree instead of opening the page."),
    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 for all."),
    port: int = option(8090, "Port to listen on; 0 for any.", min=0, max=65535),
    api_key_file: Path | None = option(None, "File with the key that the page asks for."),
    allow_host: list[str] | None = option(
        None, "Accept requests for this host name, and from its pages; repeatable."
    ),
    no_browser: bool = flag("--no-browser", "Do not open a browser."),
    as_json: shared.Json = False,
    columns: Any = tasks.COLUMNS,
) -> None:
    """Label texts in the browser, with the suggestions of a model.

    Every label is on the disk before the next text is shown. The file of labels is data for
    finetune, which scores the model on the labels that are held out.
    """
    from bertsmith.label import agreement as agreed
    from bertsmith.label import labelling, texts_to_label
    from bertsmith.ledger import Ledger

    if agreement:
        result = agreed(out)
        shared.output(as_json, [result], lambda: _show_agreement(result))
        return
    ledger = Ledger()
    options: dict[str, Any] = {
        "task": task,
        "labels": labels.split(",") if labels else [],
        "model": model,
        "settings": LabellingSettings(**settings),
        "ledger": ledger,
        **tasks.reading(columns),
    }
    if count is not None:
        rows = texts_to_label(data, out, count, **options)
        shared.output(as_json, rows, lambda: _show_rows(rows))
        shared.notes(ledger.lines())
        return
    serving = access(host, api_key_file, allow_host)
    try:
        from bertsmith.serve.labelling import labelling_app
        from bertsmith.serve.run import listen, serve
    except ImportError as error:
        raise BertsmithError(f"label needs {error.name}: pip install 'bertsmith[serve]'") from error
    listener = listen(host, port)
    address = address_of(listener, host)
    with labelling(data, out, **options) as session:
        shared.notes(ledger.lines())
        total = len(session.items)
        about = {"url": address, "texts": total, "pid": os.getpid()}
        line = f"{counted(total, 'text')} on {address} (Ctrl-C ends; labels: {out})"
        shared.output(as_json, [about], lambda: typer.echo(line))
        sys.stdout.flush()
        session.start()
        if not no_browser and not as_json and sys.stdout.isatty():
            webbrowser.open(address)
        serve(lambda: labelling_app(session, serving), listener, drain=0)


ABOUT = ("row_id", "line", "split", "suggested", "confidence")  # beside the texts


def _show_rows(rows: list[dict[str, Any]]) -> None:
    cells = []
    for row in rows:
        held = "held out" if row["split"] == "test" else ""
        confidence = row["confidence"]
        suggestion = (
            "" if confidence is None else f"{tasks.shown(row['suggested'])} {confidence:.0%}"
        )
        texts = [v for name, v in row.items() if name not in ABOUT and isinstance(v, str)]
        cells.append((row["line"], held, suggestion, " · ".join(texts)))
    tasks.show_table(("line", "", "suggestion", "text"), cells, left=True)


def _show_agreement(result: dict[str, Any]) -> None:
    if not result["texts"]:
        raise BertsmithError("no text has labels of two people yet")
    alpha = "n/a" if result["alpha"] is None else f"{result['alpha']:.3f}"
    texts = f"{result['texts']:,} texts with labels of several people, who differ on"
    typer.echo(f"{texts} {result['disagreed']:,}; Krippendorff's alpha {alpha}")
    rows = [(" and ".join(row["people"]), row["units"], row["kappa"]) for row in result["pairs"]]
    tasks.show_table(("people", "labels", "Cohen's kappa"), rows)
