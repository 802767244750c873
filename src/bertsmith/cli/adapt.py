"""`bertsmith adapt`: the model of an index, adapted to its documents without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import shared, tasks
from bertsmith.cli.declare import option, options_of
from bertsmith.cli.search import BEST_GRADE, INDEX, difference
from bertsmith.errors import BertsmithError
from bertsmith.settings.search import AdaptationSettings


def adapt(
    index: Path = INDEX,
    out: Path | None = option(
        None, "Directory of the adapted model; default: the name of the index and -model."
    ),
    queries: Path | None = option(
        None, "Queries that decide whether the search gains (see evaluate-search)."
    ),
    judgements: Path | None = option(None, "Judgements of these queries."),
    best_grade: int | None = BEST_GRADE,
    settings: Any = options_of(AdaptationSettings),
    device: shared.Device = None,
    as_json: shared.Json = False,
) -> None:
    """Adapt the model of an index to its documents, without labels.

    A linear map of the vectors is learned, by which titles, headings, items of lists, links and
    sentences are near to their texts. Documents that are held out, or judged queries, are searched
    with the old and the new model. Without a gain in nDCG@10 of hybrid search nothing is written.
    """
    from bertsmith.search import Index
    from bertsmith.search import adapt as run
    from bertsmith.search.evaluate import read_judgements, read_queries

    if (queries is None) != (judgements is None):
        raise BertsmithError("--queries and --judgements go together: give both or neither")
    texts = None if queries is None else read_queries(queries)
    grades = None if judgements is None else read_judgements(judgements, best_grade)
    with shared.interruptible(f"{index} is as it was before"):
        result = run(
            index, out, queries=texts, judgements=grades, device=device, say=shared.note, **settings
        )

    def show() -> None:
        for proof in result.proofs:
            typer.echo(f"\n{proof.queries:,} {proof.of}, with 95% bootstrap intervals")
            rows = []
            for name, scores in proof.scores.items():
                low, high = scores["intervals"]["ndcg@10"].values()
                rows.append((name, f"{scores['ndcg@10']:.4f} ({low:.3f} to {high:.3f})"))
            tasks.show_table(("", "ndcg@10"), rows, left=True, gap=3)
            for row in proof.comparisons:
                typer.echo(f"{row['second']} minus {row['first']}: {difference(row)}")
        typer.echo()
        if not result.gained:
            typer.echo(
                "hybrid search does not gain: the model was not written, the index not changed"
            )
            return
        typer.echo(f"hybrid search gains: the adapted model is in {result.out}")
        if result.replaced:
            typer.echo("the index uses it now")
            return
        typer.echo(f"use it with: bertsmith index --out {index} --model {result.out} --re-embed")
        with Index.open(index) as opened:
            keywords, vectors = opened.weights
        weights = f"--weights {keywords:g},{vectors:g}"
        typer.echo(f"and search with the weights of this comparison: {weights}")

    shared.output(as_json, [result.to_dict()], show)
