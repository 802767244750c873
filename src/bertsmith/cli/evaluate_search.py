"""`bertsmith evaluate-search`: score an index on queries with judgements."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bertsmith.cli import options as shared
from bertsmith.cli import tasks
from bertsmith.cli.declare import flag, option, options_of
from bertsmith.cli.search import BEST_GRADE, INDEX, MOVED, parse_weights
from bertsmith.cli.terminal import progress
from bertsmith.settings.search import SearchSettings

if TYPE_CHECKING:
    from bertsmith.search import LearnedWeights
    from bertsmith.search.evaluate import SearchScores


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
    from bertsmith.errors import BertsmithError
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
        results: list[SearchScores] = []
        for name in dict.fromkeys(modes):
            with progress(name) as show:
                report = partial(show, name)
                results.append(
                    scoring.evaluate_search(opened, texts, grades, name, draws, report, **ranking)
                )
        learned = None
        if learn_weights:
            from bertsmith.search.weights import learn_weights as learn

            with progress("weights") as show:
                learned = learn(opened, texts, grades, draws, partial(show, "weights"))
    *others, last = results
    comparisons = []
    if last.mode == "hybrid":
        comparisons = [scoring.compare(one, last, draws=draws) for one in others]
    if run is not None:
        scoring.write_run(run, last)
    count = len(last.queries)
    if missing := len(grades) - count:
        shared.note(f"judged queries that are not among the queries, not scored: {missing:,}")
    scores = [one.to_dict(per_query) for one in results]
    row = {"queries": count, "modes": scores, "comparisons": comparisons}
    row |= {"weights": learned.to_dict()} if learned else {}
    shared.output(as_json, [row], lambda: _show(results, comparisons, learned))


def _show(
    results: list[SearchScores], comparisons: list[dict[str, Any]], learned: LearnedWeights | None
) -> None:
    from bertsmith.search.evaluate import METRICS

    rows = []
    for one in results:
        cells = [
            f"{value:.4f} ({one.intervals[name]['low']:.3f} to {one.intervals[name]['high']:.3f})"
            for name, value in one.means.items()
        ]
        rows.append((one.mode, *cells))
    tasks.show_table(("", *METRICS), rows, left=True, gap=3)
    typer.echo(f"queries: {len(results[0].queries):,}; in brackets 95% bootstrap intervals")
    for row in comparisons:
        typer.echo(
            f"{row['second']} minus {row['first']}: {row['difference']:+.4f} {row['metric']} "
            f"(95%: {row['low']:+.4f} to {row['high']:+.4f}), p = {row['p_value']:.3g}"
        )
    if learned is None:
        return
    best, former = (
        ",".join(f"{weight:g}" for weight in pair) for pair in (learned.weights, learned.former)
    )
    typer.echo(
        f"weights {best} instead of {former}: {learned.difference:+.4f} ndcg@10, cross-validated "
        f"(95%: {learned.low:+.4f} to {learned.high:+.4f})"
    )
    gain = f"the index uses {best} from now on" if learned.gained else f"no gain: {former} is kept"
    typer.echo(gain)
