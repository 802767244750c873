"""`bertsmith heads`: statistics of every attention head."""

from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import inspection, shared, tasks
from bertsmith.cli.declare import argument


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
