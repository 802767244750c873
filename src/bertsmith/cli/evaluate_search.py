"""`bertsmith evaluate-search`: score an index on queries with judgements."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import typer

from bertsmith.cli import shared, tasks
from bertsmith.cli.declare import flag, option, options_of
from bertsmith.cli.search import BEST_GRADE, INDEX, MOVED, difference, parse_weights
from bertsmith.errors import BertsmithError
from bertsmith.settings.search import SearchSettings


def evaluate_search(
    index: Path = INDEX,
    queries: Path = option(..., "Queries: BEIR's jsonl, id<tab>text, TREC topics or SMART."),
    judgements: Path = option(..., "Judgements: BEIR's tsv, TREC's four columns or SMART's three."),
    mode: list[str] | None = option(
        None, "Score only keywords, vectors or hybrid; may be repeated. Default: all three."
    ),
    ranking: Any = options_of(SearchSettings, "weights", "fusion", "rerank", "rerank_top"),
    best_grade: int | None = BEST_GRADE,
    run: Path | None = option(
        None, "Write the ranking of the last mode to this file, in TREC's format."
    ),
    per_query: bool = flag("--per-query", "With --json, include the scores of each query."),
    draws: int = option(1000, "Bootstrap samples for intervals.", min=1),
    learn_weights: bool = flag(
        "--learn-weights",
        "Choose the weights of hybrid search on these queries, cross-validated; the index keeps "
        "them if they are better.",
    ),
    model: str | None = MOVED,
    device: shared.Device = None,
    as_json: shared.Json = False,
) -> None:
    """Score a search index on queries with judgements.

    Prints nDCG@10, recall@100 and MRR with 95% intervals. Passages are collapsed to documents
    (their ids, or the names of files) by the best passage. Keyword, vector and hybrid search are
    compared with a paired bootstrap over queries.
    """
    from bertsmith.files import check_writable
    from bertsmith.search import Index
    from bertsmith.search import evaluate as scoring

    if learn_weights and (ranking["weights"] or ranking["fusion"] != "min-max"):
        raise BertsmithError(
            "--learn-weights chooses the weights: leave out --weights and --fusion"
        )
    if run is not None:
        check_writable(run)
    texts = scoring.read_queries(queries)
    grades = scoring.read_judgements(judgements, best_grade)
    ranking["weights"] = parse_weights(ranking["weights"])
    with Index.open(index, model=model, device=device) as opened:
        with_vectors = opened.about["model"] is not None
        if learn_weights and not with_vectors:
            raise BertsmithError(f"{index}: was built without vectors: no weights to learn")
        modes = mode or (["keywords", "vectors", "hybrid"] if with_vectors else ["keywords"])
        ranking["rerank"] = opened.reranker(ranking["rerank"] or None)
        results = []
        for name in dict.fromkeys(modes):
            with shared.progress(name) as bar:
                report = partial(bar, name)
                results.append(
                    scoring.evaluate_search(opened, texts, grades, name, draws, report, **ranking)
                )
        learned = None
        if learn_weights:
            from bertsmith.search.weights import learn_weights as learn

            with shared.progress("weights") as bar:
                learned = learn(opened, texts, grades, draws, partial(bar, "weights"))
    *others, last = results
    comparisons = []
    if last.mode == "hybrid":
        comparisons = [scoring.compare(other, last, draws=draws) for other in others]
    if run is not None:
        scoring.write_run(run, last)
    count = len(last.queries)
    if missing := len(grades) - count:
        shared.note(f"judged queries that are not among the queries, not scored: {missing:,}")
    scores = [result.to_dict(per_query) for result in results]
    row = {"queries": count, "modes": scores, "comparisons": comparisons}
    row |= {"weights": learned.to_dict()} if learned else {}

    def show() -> None:
        rows = []
        for result in results:
            cells = []
            for name, value in result.means.items():
                low, high = result.intervals[name]["low"], result.intervals[name]["high"]
                cells.append(f"{value:.4f} ({low:.3f} to {high:.3f})")
            rows.append((result.mode, *cells))
        tasks.show_table(("", *scoring.METRICS), rows, left=True, gap=3)
        typer.echo(f"queries: {count:,}; in brackets 95% bootstrap intervals")
        for pair in comparisons:
            gain = difference(pair, pair["metric"])
            typer.echo(f"{pair['second']} minus {pair['first']}: {gain}, p = {pair['p_value']:.3g}")
        if learned is None:
            return
        best, former = (
            ",".join(f"{weight:g}" for weight in pair) for pair in (learned.weights, learned.former)
        )
        gain = difference(vars(learned), "ndcg@10, cross-validated")
        typer.echo(f"weights {best} instead of {former}: {gain}")
        kept = f"no gain: {former} is kept"
        typer.echo(f"the index uses {best} from now on" if learned.gained else kept)

    shared.output(as_json, [row], show)
