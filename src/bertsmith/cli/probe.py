"""`bertsmith probe`: how well a word's tag can be predicted from its states at each depth."""

from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import inspection, shared
from bertsmith.cli.declare import argument, option

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
