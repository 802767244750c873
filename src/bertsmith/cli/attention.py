"""`bertsmith attention`: a page that shows the attention weights of a text."""

from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import typer

from bertsmith.cli import inspection, shared, tasks
from bertsmith.cli.declare import argument, flag, option
from bertsmith.errors import BertsmithError


def attention(
    model: shared.Model,
    text: str | None = argument(None, "A text."),
    text_b: str | None = argument(None, "A second text, read together with the first."),
    out: Path = option(
        Path("attention.html"), "Write a page (.html) or arrays (.npz) to this file."
    ),
    file: Path | None = option(None, "Read the text from this file."),
    layers: str | None = option(None, "Show only these layers, counted from 0, as in 0,3 or 4-7."),
    heads: str | None = option(None, "Show only these heads, counted from 0, as in 0,3 or 4-7."),
    tokens: str | None = option(
        None, "Of a long text, show these tokens one by one, as in 100-300."
    ),
    against: inspection.Against = None,
    other_text: str | None = option(None, "Show another text beside the first."),
    importance: bool = flag(
        "--importance", "Underline the words that the label or answer depends on."
    ),
    view: Literal["text", "lines", "matrix", "heads"] | None = option(
        None, "The view to open with [default: lines; matrix for a long text]."
    ),
    loading: Any = shared.LOADING,
    as_json: shared.Json = False,
) -> None:
    """Write a page that shows the attention weights of a text.

    One file that needs no network: the text colored by attention, lines between tokens, a matrix
    to zoom into, and a grid of all heads. A .npz file holds the weights as arrays.
    """
    if (text is None) == (file is None):
        raise BertsmithError("give either a text or --file")
    inspection.check_out(out, (*inspection.PAGES, ".npz"))
    chosen = {
        "layers": inspection.numbers(layers, "--layers"),
        "heads": inspection.numbers(heads, "--heads"),
    }
    token_numbers = inspection.numbers(tokens, "--tokens")
    if text is None:
        text = "\n".join(shared.read_texts(None, file))
    if not text.strip():
        raise BertsmithError("the text is empty")
    from bertsmith.analysis import AttentionPage
    from bertsmith.analysis import attention as look

    names = [model] if against is None else [model, against]
    berts = [shared.open_model(name, **loading) for name in names]
    pairs = [(text, text_b), *([] if other_text is None else [(other_text, None)])]
    views = [
        look(bert, first, second, name=inspection.model_name(name), importance=importance, **chosen)
        for bert, name in zip(berts, names, strict=True)
        for first, second in pairs
    ]
    shown = range(token_numbers[0], token_numbers[-1] + 1) if token_numbers else None
    AttentionPage(tuple(views), shown, view or "").save(out)
    rows: list[dict[str, Any]] = [
        {"model": v.name, "tokens": len(v), "layers": len(v.layers), "heads": len(v.heads)}
        for v in views
    ]
    size = out.stat().st_size

    def show() -> None:
        for row in rows:
            counts = f"{row['layers']} layers, {row['heads']} heads"
            typer.echo(f"{row['model']}: {row['tokens']:,} tokens, {counts}")
        how = "read it with numpy.load" if out.suffix == ".npz" else "open it in a browser"
        typer.echo(f"written to {out}, {size / 1e6:.2f} MB; {how}")

    shared.output(as_json, [{"out": str(out), "bytes": size, "views": rows}], show)


def heads(
    model: shared.Model,
    file: Path = argument(..., "A file of texts, or a treebank with dependencies (.conllu)."),
    limit: inspection.Limit = 1000,
    seed: inspection.Seed = 0,
    out: inspection.Out = None,
    loading: Any = shared.LOADING,
    as_json: shared.Json = False,
) -> None:
    """Measure what every attention head attends to.

    Reports the entropy of its weights, their mean distance, and their share on special tokens,
    punctuation, neighbours and equal tokens; on CoNLL-U data also which dependencies each head
    finds. Layers and heads are counted from 0 and written as layer.head.
    """
    inspection.check_out(out)
    import numpy as np

    from bertsmith.analysis.heads import METRICS, measure, parsed, texts
    from bertsmith.analysis.pages import heads_page
    from bertsmith.ledger import Ledger
    from bertsmith.tasks.tagging.conll import read_treebank

    ledger = Ledger()
    if ".conllu" in file.suffixes:
        sentences = inspection.sample(list(read_treebank(file, ledger=ledger)), limit, seed)
        bert = shared.open_model(model, **loading)
        inputs = parsed(bert, sentences)
    else:
        lines = inspection.sampled_texts(file, limit, seed)
        bert = shared.open_model(model, **loading)
        inputs = texts(bert, lines)
    numbers = measure(bert, inputs)
    relations = (
        {"relation": name} | {key: value for key, value in asdict(row).items() if key != "table"}
        for name, row in numbers.relations.items()
    )

    def show() -> None:
        """Show the heads with the highest value of every metric, and the best for each relation."""
        typer.echo(f"{numbers.inputs:,} inputs, {numbers.tokens:,} tokens; heads as layer.head")
        rows = []
        for name, about in METRICS.items():
            best = [f"{layer}.{head} {value:.2f}" for layer, head, value in numbers.strongest(name)]
            mean = f"{float(np.nanmean(numbers.metrics[name])):.2f}"
            rows.append((name, mean, *[*best, "", ""][:3], about))
        tasks.show_table(("", "mean", "highest", "", "", "meaning"), rows, left=True, gap=3)
        if numbers.relations:
            typer.echo()
            headings = ("relation", "words", "head", "accuracy", "distance", "baseline")
            table = [(shared.clipped(name, 30), *row) for name, *row in numbers.relation_rows()]
            tasks.show_table((*headings, "direction"), table, left=True, gap=3)

    page = partial(heads_page, numbers, inspection.model_name(model))
    inspection.present(as_json, chain(numbers.rows(), relations), show, out, page)
    shared.notes(ledger.lines())
    shared.notes(bert.ledger.lines())
