"""`bertsmith predict`: a prediction for every row of a source, or for a text."""

import sys
from pathlib import Path
from typing import Any

from bertsmith.cli import shared, tasks
from bertsmith.cli.declare import argument, flag, option, options_of
from bertsmith.errors import BertsmithError
from bertsmith.numbers import counted
from bertsmith.settings.folders import FolderSettings


def predict(
    model: shared.Model,
    source: str = argument(..., "A file in any known format, - for standard input, or a text."),
    pair: str | None = option(None, "The second text, or the passage, where SOURCE is a text."),
    out: Path | None = option(
        None, "A .jsonl, .csv, .tsv or .parquet file, or a folder; standard output by default."
    ),
    format: str | None = option(
        None,
        "Write jsonl, csv, tsv, parquet, or spans for spacy, prodigy or doccano; by "
        "default the extension of --out.",
    ),
    top: int = option(1, "Answers to show for each question.", min=1),
    explain: bool = flag("--explain", "Add the importance of each word (slower)."),
    labels: str | None = option(
        None, "Labels to choose from, between commas, of a model that takes any."
    ),
    coverage: float | None = option(
        None, "Coverage of the sets of labels, or intervals, that a calibrated model predicts."
    ),
    device: shared.Device = None,
    dtype: shared.Dtype = None,
    running: Any = options_of(FolderSettings),
    as_json: shared.Json = False,
    columns: Any = tasks.COLUMNS,
) -> None:
    """Predict labels, tags, answers or scores for a file or a text.

    Each row is written with all of its columns and the prediction, in the same order. Files are
    read and written in portions, so that they can be of any size. If SOURCE and --out are folders,
    each .parquet file of the first becomes one of the second; the same command continues after an
    interruption.
    """
    from bertsmith.data.predictions import format_of, open_predictions
    from bertsmith.files import check_writable
    from bertsmith.tasks.evaluate import state_coverage
    from bertsmith.tasks.read import known_records, open_data
    from bertsmith.tasks.registry import task_of
    from bertsmith.tasks.stream import predict_rows

    if not source.strip():  # Path("") is the current folder
        raise BertsmithError("the text is empty; give a text, a file, or - for standard input")
    is_file = is_source(source)
    folder = Path(source) if format is None and is_file else None
    if shared.is_folder_run(folder, out, running):
        options: dict[str, Any] = {"top": top, "explain": explain, "coverage": coverage}
        options |= {"labels": _names(labels), "device": device, "dtype": dtype}
        options |= {**running, **tasks.reading(columns)}
        shared.run_folder("predict", model, folder, out, options, as_json)
        return
    records = known_records()
    format_of(out, format, records)  # a mistake is found before the model is loaded
    if out is not None:
        check_writable(out)
    bert = shared.open_model(model, device, dtype)
    bert.progress = False
    if coverage is not None:
        state_coverage(bert, coverage)
    task = task_of(bert, _names(labels))
    if top > 1 and not task.ranked:
        raise BertsmithError(f"--top is for question answering; this model's task: {task.name}")
    data = open_data(
        source if is_file else [task.row(source, pair)],
        task.reading.name,
        usual=bert.columns if is_file else None,
        ledger=bert.ledger,
        **tasks.reading(columns),
    )
    written, with_bar = 0, out is not None or not sys.stdout.isatty()
    results = open_predictions(out, format, bert.ledger, data, records)
    with results as writer, shared.progress("examples", wanted=with_bar) as show:
        for portion in predict_rows(bert, data, top=top, explain=explain, task=task):
            writer.write(portion.rows)
            written += len(portion.rows)
            show("examples", portion.share, 1.0, f"{written:,} examples")
    if out is not None and as_json:
        shared.print_json([{"out": str(out), "rows": written}])
    elif out is not None:
        shared.note(f"{counted(written, 'row')} written to {out}")
    if data.columns and is_file:
        shared.note(tasks.columns_line(data.columns))
    shared.notes(bert.ledger.lines())


def is_source(word: str) -> bool:
    """Is this the name of a file (or of one that is not there), and not a text?"""
    from bertsmith.files import suffix_of
    from bertsmith.tasks.read import known_formats

    try:
        if word == "-" or Path(word).exists():
            return True
    except (OSError, ValueError):  # too long for a name, or with a null character
        return False
    like_a_path = suffix_of(Path(word)) in known_formats() or "/" in word or "*" in word
    return like_a_path and not any(character.isspace() for character in word)


def _names(labels: str | None) -> list[str] | None:
    if labels is None:
        return None
    names = [name.strip() for name in labels.split(",") if name.strip()]
    if len(set(names)) < 2:
        raise BertsmithError(f"--labels takes several names between commas, not {labels!r}")
    return names
