"""Search scores: queries and judgements of BEIR, TREC or SMART files → nDCG, recall, MRR."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.data.streams import Stream
from bertsmith.errors import BertsmithError
from bertsmith.files import atomic
from bertsmith.foreign import parse_json
from bertsmith.ledger import Ledger
from bertsmith.metrics.intervals import resample
from bertsmith.metrics.labels import weighted_mean
from bertsmith.metrics.paired import Comparison, resample_pair
from bertsmith.metrics.ranking import ndcg, ordered, recall, reciprocal_rank
from bertsmith.numbers import counted, whole_number
from bertsmith.search.encodings import encoding_of
from bertsmith.search.index import Index

DEPTH = 100  # documents that are ranked for each query
Metric = Callable[[Sequence[str], Mapping[str, int]], float]
METRICS: dict[str, Metric] = {"ndcg@10": ndcg, "recall@100": recall, "mrr": reciprocal_rank}
Judgements = dict[str, dict[str, int]]
Run = dict[str, dict[str, float]]  # query → document → score


def read_queries(path: Path) -> dict[str, str]:
    """Queries by their ids: BEIR's jsonl, `id<tab>text` lines, TREC topics or SMART."""
    lines = list(_lines(path))
    text = "\n".join(line for _, line in lines)
    start = text.lstrip()
    if start.startswith(".I"):
        # Judgements of SMART collections count queries from 1; their own numbers have gaps.
        texts = re.findall(r"^\.W[ \t]*\n(.*?)(?=^\.I|\Z)", text, re.MULTILINE | re.DOTALL)
        queries = {str(number): " ".join(query.split()) for number, query in enumerate(texts, 1)}
    elif not start.startswith("{") and "<top>" in start[:2000].lower():
        queries = _topics(text)
    else:
        read = _json_query if start.startswith("{") else _tabbed_query
        full = ((number, line) for number, line in lines if line.strip())
        queries = dict(read(line, f"{path}, line {number}") for number, line in full)
    if not queries:
        raise BertsmithError(f"{path}: there are no queries in it")
    return queries


def _json_query(line: str, where: str) -> tuple[str, str]:
    row = parse_json(line, where, object)
    name = row.get("_id", row.get("id")) if isinstance(row, dict) else None
    text = row.get("text", row.get("query")) if isinstance(row, dict) else None
    if not isinstance(name, str | int) or not isinstance(text, str):
        raise BertsmithError(f'{where}: no "_id" and "text" of a query')
    return str(name), text


def _tabbed_query(line: str, where: str) -> tuple[str, str]:
    name, tab, text = line.partition("\t")
    if not tab:
        known = (
            "BEIR's queries.jsonl, lines of an id, a tab and a text, TREC topics, SMART's .I and .W"
        )
        raise BertsmithError(f"{where}: not a query; known: {known}")
    return name.strip(), text.strip()


def _topics(text: str) -> dict[str, str]:
    """TREC topics: <num> Number: 401 <title> the query."""
    queries = {}
    for topic in re.split(r"</?top>", text, flags=re.IGNORECASE):
        fields = {name.lower(): value for name, value in re.findall(r"<(\w+)>([^<]*)", topic)}
        number = re.sub(r"^\s*Number:", "", fields.get("num", "")).strip()
        title = re.sub(r"^\s*Topic:", "", fields.get("title", ""))
        if number and title.strip():
            queries[number] = " ".join(title.split())
    return queries


def read_judgements(path: Path, best: int | None = None) -> Judgements:
    """Relevance by query and document: BEIR's tsv, TREC's four columns, SMART's three.

    `best` is the grade of the most relevant documents in files where 1 is the best, as
    Cranfield's: grades from it up are turned around.
    """
    judgements: Judgements = {}
    for number, line in _lines(path):
        cells = line.split()
        if not cells or (number == 1 and cells[0] in ("query-id", "query_id", "qid", "query")):
            continue
        if len(cells) not in (3, 4):
            raise BertsmithError(
                f"{path}, line {number}: {counted(len(cells), 'column')}; judgements have three"
                " (query, document, grade) or TREC's four (query, 0, document, grade)"
            )
        grade = whole_number(cells[-1], f"{path}, line {number}: the grade", -1000, 1000)
        judgements.setdefault(cells[0], {})[cells[-2]] = grade
    if not judgements:
        raise BertsmithError(f"{path}: there are no judgements in it")
    if best is not None:
        worst = max(max(grades.values()) for grades in judgements.values())
        for grades in judgements.values():
            grades |= {d: worst + best - g for d, g in grades.items() if g >= best}
    return judgements


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    if not path.is_file():
        raise BertsmithError(f"{path}: no such file")
    yield from Stream(path, encoding_of(path, Ledger())).numbered()


@dataclass(frozen=True)
class SearchScores:
    """Scores of one search method: means over queries, confidence intervals, per-query scores."""

    mode: str
    run: Run
    queries: dict[str, dict[str, float]]  # query → metric → score
    intervals: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def means(self) -> dict[str, float]:
        """The mean of each metric over all judged queries."""
        rows = self.queries.values()
        return {name: float(np.mean([scores[name] for scores in rows])) for name in METRICS}

    def to_dict(self, per_query: bool = False) -> dict[str, Any]:
        """Means and intervals; with `per_query` the scores of each query."""
        content: dict[str, Any] = {"mode": self.mode, **self.means, "intervals": self.intervals}
        return {**content, "queries": self.queries} if per_query else content


def evaluate_search(
    index: Index,
    queries: Mapping[str, str],
    judgements: Judgements,
    mode: str = "hybrid",
    draws: int = 1000,
    report: Callable[[int, int], None] = lambda done, total: None,
    **options: Any,
) -> SearchScores:
    """Rank documents for every judged query and score the rankings.

    A document's score is that of its best passage. Queries that find nothing count as 0.
    `options` are those of `Index.search`. With a reranker, whose scores have another scale than
    those of the passages that it does not read, the run holds ranks (-1, -2, ...) instead.
    """
    judged = judged_queries(queries, judgements)
    run: Run = {}
    for done, name in enumerate(judged, 1):
        hits = index.search(
            queries[name], DEPTH + 50, mode=mode, by_document=True, highlight=False, **options
        )
        scores: dict[str, float] = {}
        for rank, hit in enumerate(hits, 1):
            score = hit.score if options.get("rerank") is None else -float(rank)
            scores.setdefault(document_name(hit.document, hit.file), score)
        run[name] = {document: scores[document] for document in ordered(scores)[:DEPTH]}
        report(done, len(judged))
    return score_run(run, judgements, mode, draws)


def judged_queries(queries: Mapping[str, str], judgements: Judgements) -> list[str]:
    """The names of the queries that are judged; none is an error."""
    judged = [name for name in judgements if name in queries]
    if not judged:
        names, others = ", ".join([*queries][:3]), ", ".join([*judgements][:3])
        known = f"queries are called {names}, ..., judgements {others}, ..."
        raise BertsmithError(f"no query is judged: {known}")
    return judged


def document_name(document: str, file: str) -> str:
    """The name of a document in judgements: its id, or the name of its file."""
    return document or Path(file).stem


def score_run(
    run: Run, judgements: Judgements, mode: str = "run", draws: int = 1000
) -> SearchScores:
    """Scores of a run with bootstrap intervals over queries."""
    scores: dict[str, dict[str, float]] = {name: {} for name in run}
    intervals = {}
    for metric, compute in METRICS.items():
        for name, ranking in run.items():
            scores[name][metric] = compute(ordered(ranking), judgements[name])
        values = [row[metric] for row in scores.values()]
        summary = resample(partial(weighted_mean, values), len(values), draws=draws)
        intervals[metric] = {"low": summary.low, "high": summary.high}
    return SearchScores(mode, run, scores, intervals)


def compare(
    first: SearchScores, second: SearchScores, metric: str = "ndcg@10", draws: int = 1000
) -> dict[str, Any]:
    """The difference of the second from the first on the same queries, with its interval."""
    rows = [[side.queries[name][metric] for name in first.queries] for side in (first, second)]
    means = partial(weighted_mean, rows[0]), partial(weighted_mean, rows[1])
    result: Comparison = resample_pair(*means, len(first.queries), draws=draws)
    return {"first": first.mode, "second": second.mode, "metric": metric, **asdict(result)}


def write_run(path: Path, scores: SearchScores) -> None:
    """Write a run in TREC's format, as read by trec_eval."""
    with atomic(path, "w") as stream:
        for query, ranking in scores.run.items():
            for rank, (document, score) in enumerate(ranking.items(), 1):
                name = "_".join(document.split()) or "-"
                stream.write(f"{query} Q0 {name} {rank} {score:.9g} {scores.mode}\n")
