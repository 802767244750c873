"""`bertsmith mine`: hard negatives of queries, for training a model of vectors or a reranker."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import shared
from bertsmith.cli.declare import option, options_of
from bertsmith.cli.search import BEST_GRADE, INDEX, MOVED
from bertsmith.numbers import counted
from bertsmith.settings.search import MiningSettings


def mine(
    index: Path = INDEX,
    queries: Path = option(
        ..., "Queries (see evaluate-search), or rows of an anchor and its positives."
    ),
    judgements: Path | None = option(
        None, "Judgements of the queries; without them, the rows have positives."
    ),
    out: Path = option(..., "Write the rows to this .jsonl file."),
    settings: Any = options_of(MiningSettings),
    best_grade: int | None = BEST_GRADE,
    model: str | None = MOVED,
    device: shared.Device = None,
    as_json: shared.Json = False,
) -> None:
    """Find hard negatives of queries, for training on them.

    They are the best hits of a query that are not relevant. Hits that score nearly as high as the
    best positive are left out, since they may be relevant. Each row has an anchor, its positives
    and its negatives; `bertsmith finetune` trains on such rows, a model of vectors (--task
    similarity) or a reranker (--task reranking).
    """
    from bertsmith.files import check_writable, write_text
    from bertsmith.search import Index, mining

    check_writable(out)
    with (
        Index.open(index, model=model, device=device) as opened,
        shared.progress("queries") as show,
    ):
        if judgements is None:
            questions = mining.read_questions(queries)
        else:
            from bertsmith.search.evaluate import read_judgements, read_queries

            grades = read_judgements(judgements, best_grade)
            questions = mining.judged_questions(opened, read_queries(queries), grades)
        rows = list(mining.mine(opened, questions, partial(show, "queries"), **settings))
    write_text(out, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
    negatives = sum(len(row["negative"]) for row in rows)
    without = sum(not row["negative"] for row in rows)
    summary = {"out": str(out), "rows": len(rows), "negatives": negatives, "without": without}
    line = f"{counted(len(rows), 'row')} with {counted(negatives, 'negative')} in {out}"
    line += f"; rows without a negative: {without:,}" if without else ""
    shared.output(as_json, [summary], lambda: typer.echo(line))
