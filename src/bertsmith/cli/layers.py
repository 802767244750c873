"""`bertsmith lens`, `cka`, `probe`: what the states of a model hold at each depth."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import inspection, shared, tasks
from bertsmith.cli.declare import argument, option
from bertsmith.errors import BertsmithError


def lens(
    model: shared.Model,
    text: str = argument(..., "A text with [MASK] or <mask> in it."),
    top: int = option(5, "Number of predictions at each depth.", min=1),
    out: inspection.Out = None,
    loading: Any = shared.LOADING,
    as_json: shared.Json = False,
) -> None:
    """Show the predictions for a mask at each depth (the logit lens).

    The masked-LM head reads the states at every depth: 0 is the output of the embeddings, k that of
    block k. The head was trained on the last depth only.
    """
    inspection.check_out(out)
    from bertsmith.analysis.layers import lens as look
    from bertsmith.analysis.pages import depth_name, lens_page

    bert = shared.open_model(model, **loading)
    guesses = look(bert, text, top)

    def show() -> None:
        masks = sorted({guess.mask for guess in guesses})
        for mask in masks:
            if len(masks) > 1:
                typer.echo(f"mask {mask + 1}")
            rows = []
            for guess in guesses:
                if guess.mask == mask:
                    pairs = zip(guess.tokens, guess.scores, strict=True)
                    cells = [f"{shared.clipped(token, 20)} {score:.0%}" for token, score in pairs]
                    rows.append((depth_name(guess.depth), *cells))
            tasks.show_table(("depth", *[""] * top), rows, left=True, gap=3)

    page = partial(lens_page, text, guesses, inspection.model_name(model))
    inspection.present(as_json, map(asdict, guesses), show, out, page)
    shared.notes(bert.ledger.lines())


def cka(
    model: shared.Model,
    file: Path = argument(..., "A file of texts."),
    against: inspection.Against = None,
    limit: inspection.Limit = 1000,
    seed: inspection.Seed = 0,
    out: inspection.Out = None,
    loading: Any = shared.LOADING,
    as_json: shared.Json = False,
) -> None:
    """Compare the states at all depths, of one model or of two.

    Prints linear CKA (Kornblith et al. 2019) between every two depths, over the mean states of
    the texts without special tokens. Depth 0 is the output of the embeddings, depth k that of
    block k. Two models may have different tokenizers and widths.
    """
    inspection.check_out(out)
    texts = inspection.sampled_texts(file, limit, seed)
    if len(texts) < 2:
        raise BertsmithError(f"{file}: CKA needs two texts or more")
    from bertsmith.analysis.layers import alike, few_texts
    from bertsmith.analysis.pages import cka_page

    models = [model] if against is None else [model, against]
    berts = [shared.open_model(name, **loading) for name in models]
    notes = few_texts(len(texts), *berts)
    shared.notes(notes)
    table = alike(berts[0], texts, *berts[1:])
    names = [inspection.model_name(name) for name in models]

    def show() -> None:
        depths = f"rows: depths of {names[0]}; columns: depths of {names[-1]}"
        typer.echo(f"{depths}; 0 is the embeddings")
        rows = [(str(depth), *(f"{value:.2f}" for value in row)) for depth, row in enumerate(table)]
        tasks.show_table(("", *map(str, range(table.shape[1]))), rows)

    rows = ({"depth": depth, "cka": row} for depth, row in enumerate(table.tolist()))
    page = partial(cka_page, table, names, len(texts), notes)
    inspection.present(as_json, rows, show, out, page)
    for bert in berts:
        shared.notes(bert.ledger.lines())


DATA = argument(
    ..., "Words with tags: CoNLL, CoNLL-U (parts of speech), or any other file for tagging."
)


def probe(
    model: shared.Model,
    train: Path = DATA,
    test: Path = DATA,
    limit: int = option(
        500, "Use a random sample of at most this many sentences of each file.", min=1
    ),
    seed: inspection.Seed = 0,
    loading: Any = shared.LOADING,
    as_json: shared.Json = False,
) -> None:
    """Predict tags from the states at every depth.

    Fits a linear classifier on the words of TRAIN and scores it on those of TEST.
    The control task gives every word form a random tag: the classifier can only memorize it.
    Selectivity is accuracy minus that of the control task. Depth 0 is the output of the embeddings,
    depth k that of block k.
    """
    from bertsmith.analysis.probes import probe as fit
    from bertsmith.tasks.read import read_data
    from bertsmith.tasks.tagging.task import TASK

    learn, judge = (
        inspection.sample(read_data(file, TASK.name).gold(), limit, seed) for file in (train, test)
    )
    bert = shared.open_model(model, **loading)
    result = fit(bert, learn, judge, seed=seed)
    baselines = {"majority": result.majority, "lookup": result.lookup}
    columns = ("depth", "accuracy", "control", "selectivity")
    rows = ({name: getattr(row, name) for name in columns} | baselines for row in result.scores)

    def show() -> None:
        typer.echo(
            f"{len(result.labels)} tags, {result.train:,} training words, {result.test:,} test "
            f"words; baselines: most frequent tag {result.majority:.1%}, most frequent tag of each "
            f"word form {result.lookup:.1%}"
        )
        typer.echo("depth          accuracy   control   selectivity")
        for row in result.scores:
            name = "0 (embeddings)" if row.depth == 0 else str(row.depth)
            scores = f"{row.accuracy:8.1%} {row.control:9.1%} {row.selectivity:13.1%}"
            typer.echo(f"{name:14} {scores}")

    shared.output(as_json, rows, show)
    shared.notes(bert.ledger.lines())
