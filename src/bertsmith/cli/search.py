"""`bertsmith search`, `evaluate-search`, `mine`, `adapt`: search an index, score and improve it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from bertsmith.cli import shared, tasks
from bertsmith.cli.declare import argument, flag, option, options_of
from bertsmith.errors import BertsmithError, printable
from bertsmith.numbers import counted, real_number
from bertsmith.settings.search import AdaptationSettings, MiningSettings, SearchSettings

if TYPE_CHECKING:
    from bertsmith.search import FoundAnswer, Hit

LONGEST = 400  # characters of a passage that are shown
INDEX = argument(..., "A folder that bertsmith index wrote.", metavar="INDEX")
MOVED = option(None, "New location of the index's model, if it was moved.")
BEST_GRADE = option(None, "The best grade, if lower grades are better: 1 for Cranfield's file.")


def search(
    index: Path = INDEX,
    query: str | None = argument(None, 'Words, "exact phrases" and beginnings of words (begin*).'),
    top: int = option(10, "Number of results.", min=1, max=10_000),
    keywords: bool = flag("--keywords", "Rank by keywords alone."),
    vectors: bool = flag("--vectors", "Rank by vectors alone."),
    ranking: Any = options_of(SearchSettings),
    answer: str | None = option(
        None, "Extract answers from the passages with this question-answering model."
    ),
    page: bool = flag("--page", "Open a search page in the browser until Ctrl-C."),
    port: int = option(0, "Port of the page; 0: any free port.", min=0),
    model: str | None = MOVED,
    device: shared.Device = None,
    dtype: shared.Dtype = None,
    as_json: shared.Json = False,
) -> None:
    """Search an index by keywords and vectors combined.

    Results are passages with their file and line. --json prints one object for each hit.
    """
    from bertsmith.search import Index

    if keywords and vectors:
        raise BertsmithError("--keywords and --vectors exclude each other; hybrid is the default")
    if page:
        _serve(index, port, model=model, device=device, dtype=dtype)
        return
    if query is None or not query.strip():
        raise BertsmithError("no query: give one after the index, or --page")
    mode = "keywords" if keywords else "vectors" if vectors else "hybrid"
    with Index.open(index, model=model, device=device, dtype=dtype) as opened:
        reranker = opened.reranker(ranking["rerank"] or None)
        pair = parse_weights(ranking["weights"]) or opened.weights
        mode = mode if opened.about["model"] or vectors else "keywords"
        scale = scale_of(mode, pair, ranking["fusion"]) if reranker is None else reranker.scale
        ranking |= {"weights": pair, "rerank": reranker}
        hits = opened.search(query, top, mode=mode, **ranking)
    extracted: list[FoundAnswer] = []
    if answer:
        from bertsmith.search import answers

        extracted = answers(answer, query, hits, device=device)
    rows = [{"answer": span.to_dict()} for span in extracted] + [hit.to_dict() for hit in hits]
    shared.output(as_json, rows, lambda: show(hits, scale, extracted))


def _serve(index: Path, port: int, **loading: str | None) -> None:
    import webbrowser

    from bertsmith.search import Index
    from bertsmith.search.page import server

    with Index.open(index, **loading) as opened, server(opened, port) as running:
        address = f"http://127.0.0.1:{running.server_port}/"
        shared.note(f"search page at {address}; stop with Ctrl-C")
        webbrowser.open(address)
        running.serve_forever()


def parse_weights(text: str | None) -> tuple[float, float] | None:
    """Two numbers, not both 0; None: the defaults."""
    if text is None:
        return None
    numbers = text.split(",")
    if len(numbers) != 2:
        raise BertsmithError(f"--weights must be two numbers such as 1,0.5, not {text[:40]!r}")
    first, second = (real_number(number, "--weights", 0.0, 1e6) for number in numbers)
    if not first and not second:
        raise BertsmithError("--weights: one of the two must be above 0")
    return first, second


def difference(row: Mapping[str, Any], metric: str = "") -> str:
    """The difference of two scores with its 95% interval."""
    unit = f" {metric}" if metric else ""
    return f"{row['difference']:+.4f}{unit} (95%: {row['low']:+.4f} to {row['high']:+.4f})"


def scale_of(mode: str, weights: tuple[float, float], fusion: str) -> str:
    """What the score of a hit is."""
    if mode == "keywords":
        return "BM25 of the query's words; higher is better"
    if mode == "vectors":
        return "cosine similarity of query and passage, at most 1"
    first, second = (f"{weight:g}" for weight in weights)
    if fusion == "rrf":
        return f"{first} / (60 + rank by keywords) + {second} / (60 + rank by vectors)"
    return f"{first} × BM25 + {second} × cosine similarity, each scaled to 0–1 within this search"


def show(hits: list[Hit], scale: str, extracted: Sequence[FoundAnswer] = ()) -> None:
    """Print answers, then hits with the words that match in bold, and what their scores are."""
    from rich.text import Text

    for span in extracted:
        text, place = _one_line(span.text).strip(), printable(_near(span))
        typer.echo(f"answer: {text}  (confidence {span.score:.2f}, {place})")
    console = shared.console()
    if not hits:
        typer.echo("nothing matches")
        return
    for number, hit in enumerate(hits, 1):
        above = " > ".join(dict.fromkeys(part for part in (hit.title, hit.heading) if part))
        if hit.heading.startswith(hit.title):
            above = hit.heading or hit.title
        line = Text(f"{number}. ")
        line.append(printable(_near(hit)), style="bold cyan")
        line.append(f"  {hit.score:.3f}", style="dim")
        if hit.document:
            line.append(f"  {shared.clipped(hit.document, 60)}", style="dim")
        console.print(line, soft_wrap=True)
        if above:
            console.print(Text(f"   {shared.clipped(above, 120)}", style="italic"), soft_wrap=True)
        console.print(_excerpt(hit, Text("   ")), soft_wrap=True)
        console.print()
    console.print(Text(f"score: {scale}", style="dim"), soft_wrap=True)


def _near(hit: Hit | FoundAnswer) -> str:
    """The place of a hit or answer, relative to the current folder where that is shorter."""
    return hit.place.removeprefix(f"{Path.cwd()}{os.sep}")


def _excerpt(hit: Hit, line: Any) -> Any:
    """The sentences of a passage that match best, on one line, matches in bold."""
    place, end = hit.excerpt(LONGEST)
    line.append("… " if place > hit.body_start else "")
    for low, high in hit.highlights:
        if place <= low and high <= end:
            line.append(_one_line(hit.text[place:low]))
            line.append(_one_line(hit.text[low:high]), style="bold yellow")
            place = high
    line.append(_one_line(hit.text[place:end]))
    line.append(" …" if end < len(hit.text) else "")
    return line


def _one_line(text: str) -> str:
    """A text without line feeds and control characters."""
    return re.sub(" +", " ", "".join(c if c.isprintable() else " " for c in text))


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
