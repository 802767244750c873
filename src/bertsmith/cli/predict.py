"""`bertsmith predict`, `embed`, `fill-mask`, `follows`: what a model says of texts."""

import sys
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import typer

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


SHOWN = 10  # texts that are compared on the screen


def embed(
    model: shared.Model,
    texts: shared.Texts = None,
    file: shared.File = None,
    out: Path | None = option(
        None, "Write vectors to a .npy, .jsonl or .parquet file, or to a folder."
    ),
    pooling: str | None = option(None, "Pooling: mean or cls [default: the model's]."),
    normalise: bool | None = option(None, "Normalise vectors to length 1 [default: the model's]."),
    long: str = option(
        "window",
        "Texts beyond the model's length: window averages the vectors of all parts, cut "
        "embeds the beginning (faster; what sentence-transformers does), refuse is an error.",
    ),
    prompt: str | None = option(None, 'Text put before each text, such as "query: ".'),
    prompt_name: str | None = option(
        None, "Use the model's prompt of this name: query, document, ..."
    ),
    width: int | None = option(
        None, "Keep this many elements of each vector, for models trained with --matryoshka.", min=1
    ),
    loading: Any = shared.LOADING,
    running: Any = options_of(FolderSettings),
    as_json: shared.Json = False,
    columns: Any = tasks.COLUMNS,
) -> None:
    """Compute a vector for each text.

    Files of any size are processed in chunks. A .npy file
    has a vector for each row; .jsonl and .parquet have the rows too.
    If --file and --out are folders, each .parquet file of the first becomes one of the second;
    the same command continues after an interruption.
    """
    from bertsmith.data.vectors import check_ending, open_vectors
    from bertsmith.files import check_writable
    from bertsmith.tasks.stream import embed_rows

    options: dict[str, Any] = {"pooling": pooling, "normalise": normalise, "long": long}
    options |= {"prompt": prompt, "prompt_name": prompt_name, "width": width}
    if shared.is_folder_run(file, out, running):
        options |= {**loading, **running, **tasks.reading(columns)}
        shared.run_folder("embed", model, file, out, options, as_json)
        return
    if out is not None:
        check_ending(out)
        check_writable(out)
    data = shared.open_texts(texts, file, columns)
    bert = shared.open_model(model, **loading)
    data.ledger = bert.ledger
    count = 0
    first: list[tuple[str, Any]] = []
    with nullcontext() if out is None else open_vectors(out) as writer:
        for portion in embed_rows(bert, data, **options):
            count += len(portion.texts)
            if writer is not None:
                writer.write(portion.rows, portion.vectors)
            elif as_json:
                pairs = zip(portion.texts, portion.vectors.tolist(), strict=True)
                shared.print_json({"text": text, "vector": vector} for text, vector in pairs)
            else:
                pairs = zip(portion.texts, portion.vectors, strict=True)
                first += islice(pairs, SHOWN - len(first))
    if out is not None:
        width = width or bert.vector_width
        row = {"out": str(out), "texts": count, "width": width}
        line = f"{counted(count, 'vector')} of width {width} in {out}"
        shared.output(as_json, [row], lambda: typer.echo(line))
    elif not as_json:
        _show(first, count)
    shared.report_source(data)
    if bert.ledger.counts["long texts read in windows"]:
        shared.note("--long cut reads only the beginning of long texts, which is faster")
    shared.notes(bert.ledger.lines())


def _show(first: list[tuple[str, Any]], count: int) -> None:
    """How alike the first texts are; of a single one, how its vector begins."""
    import numpy as np
    from rich.table import Table
    from rich.text import Text

    console = shared.console()
    vectors = np.stack([vector for _, vector in first])
    width, lengths = vectors.shape[1], np.linalg.norm(vectors, axis=1, keepdims=True)
    if count == 1:
        begin = " ".join(f"{value:.4f}" for value in vectors[0, :4])
        typer.echo(f"a vector of width {width} and length {lengths[0, 0]:.3f}: {begin} …")
        return
    most = max(2, min(len(first), (console.width - 30) // 6))
    near = vectors[:most] / np.maximum(lengths[:most], 1e-12)
    typer.echo(f"{count:,} vectors of width {width}; cosine similarities:")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ["", *(str(number + 1) for number in range(most))]:
        table.add_column(heading, justify="right", min_width=len(heading) and 4, no_wrap=True)
    table.add_column("")
    for number, row in enumerate(near @ near.T):
        shown = Text(shared.clipped(first[number][0], console.width - 6 * most - 6))
        table.add_row(str(number + 1), *(f"{value:.2f}" for value in row), shown)
    console.print(table)
    if count > most:
        typer.echo(f"and {count - most:,} more; write all with --out vectors.npy")


def fill_mask(
    model: shared.Model,
    texts: shared.Texts = None,
    file: shared.File = None,
    top: int = option(5, "Number of predictions for each mask."),
    loading: Any = shared.LOADING,
    as_json: shared.Json = False,
    columns: Any = tasks.COLUMNS,
) -> None:
    """Predict the words at [MASK] or <mask>."""
    from rich.text import Text

    lines = shared.read_texts(texts, file, columns)
    bert = shared.open_model(model, **loading)
    guesses = bert.fill_mask(lines, top=top)
    pairs = zip(lines, guesses, strict=True)
    rows = ({"text": text, "guesses": [asdict(guess) for guess in row]} for text, row in pairs)

    def show() -> None:
        """Show each text with one of its masks in bold, and below it the guesses for that mask."""
        console, mask = shared.console(), str(bert.tokenizer.mask_token)
        for text, row in zip(lines, guesses, strict=True):
            place = 0
            for number, best in groupby(row, key=lambda guess: guess.mask):
                place = text.find(mask, place + (number > 0))
                name = f"mask {number + 1}: " if row[-1].mask else ""
                room = console.width - len(name) - len(mask)
                before, after = _around(text[:place], text[place + len(mask) :], room)
                console.print(Text.assemble(name, before, (mask, "bold"), after), no_wrap=True)
                for guess in best:
                    bar, token = "█" * round(20 * guess.score), shared.clipped(guess.token, 40)
                    console.print(f"{guess.score:7.1%}  {bar:20}  {token}", markup=False)

    shared.output(as_json, rows, show)
    shared.notes(bert.ledger.lines())


def _around(before: str, after: str, room: int) -> tuple[str, str]:
    """As much of what stands before and after a mask as there is room for."""
    left = max(room // 2, room - len(after))
    right = room - min(left, len(before))
    return shared.clipped(before[::-1], left)[::-1], shared.clipped(after, right)


def follows(
    model: shared.Model,
    first: str | None = argument(None, "A text."),
    second: str | None = argument(None, "The text that may follow it."),
    file: Path | None = option(None, "Read pairs of texts from this file."),
    loading: Any = shared.LOADING,
    as_json: shared.Json = False,
) -> None:
    """Print the probability that the second text follows the first.

    Uses the next-sentence head of BERT, or the sentence-order head of ALBERT, which compares a
    pair with its reverse. The model must have been saved with that head.
    """
    if (first is None or second is None) == (file is None) or (first and file):
        raise BertsmithError("give two texts, or a file of pairs with --file")
    pairs = [(first or "", second or "")]
    if file is not None:
        from bertsmith.tasks.following import read_pairs

        pairs = read_pairs(file)
    bert = shared.open_model(model, **loading)
    firsts, seconds = ([pair[side] for pair in pairs] for side in (0, 1))
    for a, b, chance in zip(firsts, seconds, bert.follows(firsts, seconds), strict=True):
        texts = "" if file is None else f"  {shared.clipped(f'{a} / {b}', 90)}"
        row = {"first": a, "second": b, "probability": chance}
        shared.output(as_json, [row], partial(typer.echo, f"{chance:7.2%}{texts}"))
    shared.notes(bert.ledger.lines())
