"""`bertsmith evaluate-search`: score an index on queries with judgements."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bertsmith.cli import options as shared
from bertsmith.cli import tasks
from bertsmith.cli.declare import flag, option, options_of, takes
from bertsmith.cli.search import INDEX, MOVED, parse_weights
from bertsmith.cli.terminal import progress
from bertsmith.settings.search import SearchSettings

if TYPE_CHECKING:
    from bertsmith.search import LearnedWeights
    from bertsmith.search.evaluate import SearchScores


@takes(options_of(SearchSettings, "weights", "fusion", "rerank", "rerank_top"), "ranking")
def evaluate_search(
    index: Path = INDEX,
    queries: Path = option(..., "Queries: BEIR's jsonl, id<tab>text, TREC topics or SMART."),
    judgements: Path = option(..., "Judgements: BEIR's tsv, TREC's four columns or SMART's three."),
    mode: list[str] | None = option(
        None, "Score only keywords, vectors or hybrid; may be repeated. Default: all three."
    ),
    ranking: Any = None,
    best_grade: int | None = option(
        None, "The best grade, if lower grades are better: 1 for Cranfield's file."
    ),
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
        chosen = list(dict.fromkeys(mode or ["keywords", "vectors", "hybrid"]))
        if opened.about["model"] is None:
            if learn_weights:
                raise BertsmithError(f"{index}: was built without vectors: no weights to learn")
            chosen = chosen if mode else ["keywords"]
        ranking["rerank"] = opened.reranker(ranking["rerank"] or None)
        results: list[SearchScores] = []
        for name in chosen:
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
    comparisons = [
        scoring.compare(one, results[-1], draws=draws)
        for one in results[:-1]
        if results[-1].mode == "hybrid"
    ]
    if run is not None:
        scoring.write_run(run, results[-1])
    missing = len(grades) - len(results[0].queries)
    if missing:
        shared.note(f"judged queries that are not among the queries, not scored: {missing:,}")
    modes = [one.to_dict(per_query) for one in results]
    row = {"queries": len(results[0].queries), "modes": modes, "comparisons": comparisons}
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
    for two in comparisons:
        typer.echo(
            f"{two['second']} minus {two['first']}: {two['difference']:+.4f} {two['metric']} "
            f"(95%: {two['low']:+.4f} to {two['high']:+.4f}), p = {two['p_value']:.3g}"
        )
    if learned is None:
        return
    best, former = (
        ",".join(f"{one:g}" for one in pair) for pair in (learned.weights, learned.former)
    )
    typer.echo(
        f"weights {best} instead of {former}: {learned.difference:+.4f} ndcg@10, cross-validated "
        f"(95%: {learned.low:+.4f} to {learned.high:+.4f})"
    )
    kept = f"the index uses {best} from now on" if learned.gained else f"no gain: {former} is kept"
    typer.echo(kept)
