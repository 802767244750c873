"""Search quality on SciFact and Cranfield: nDCG@10, recall@100 and MRR with 95% intervals.

    python benchmarks/search_quality.py scifact minilm=MODEL embed=bertsmith-embed --indexes FOLDER
    python benchmarks/search_quality.py cranfield embed=bertsmith-embed --indexes FOLDER --weights
    python benchmarks/search_quality.py scifact minilm=MODEL --indexes FOLDER --first-tokens

Builds an index for each model (or opens the one in FOLDER), ranks the test queries by keywords,
vectors and both, and compares hybrid search with the other two (paired bootstrap). Every query's
scores are compared with those of pytrec_eval on the same ranking; the largest difference is
recorded, or that pytrec_eval is not installed (it has no wheel for ARM). `--weights` instead tries
weights of the vectors in hybrid search, on queries that are not reported otherwise: SciFact's train
queries, Cranfield's odd ones (its even ones are reported). `--first-tokens` embeds one passage for
each document, cut to the tokens that the model reads at once, as in published evaluations. Results
are added to --out.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("collection", choices=("scifact", "cranfield"))
parser.add_argument("models", nargs="+", metavar="NAME=MODEL")
parser.add_argument("--indexes", type=Path, required=True, help="folder of the indexes")
parser.add_argument("--weights", action="store_true", help="try weights of the vectors")
parser.add_argument("--first-tokens", action="store_true", help="one cut passage for a document")
parser.add_argument("--data", type=Path, default=Path("../shared/data"))
parser.add_argument("--out", type=Path, default=Path("benchmarks/results/search_quality.json"))

FILES = {
    "scifact": ("corpus.jsonl.xz", "queries.jsonl.xz", "qrels_test.tsv.xz", None),
    "cranfield": ("cran.all.1400.xz", "cran.qry.xz", "cranqrel.xz", 1),
}
MEASURES = {"ndcg@10": "ndcg_cut_10", "recall@100": "recall_100", "mrr": "recip_rank"}
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
DRAWS = 2000
NOT_INSTALLED = "pytrec_eval is not installed"


def build(path: Path, corpus: Path, model: str, first_tokens: bool) -> dict[str, Any]:
    """Build the index if it is not there; its settings, its size and how long it took to build."""
    from bertsmith.search import Index
    from bertsmith.search.build import BuildSettings, update_folders

    seconds = None
    if not path.exists():
        began = time.perf_counter()
        settings = BuildSettings(model=model)
        if first_tokens:
            settings = BuildSettings(model=model, passage_size=100_000, overlap=0, long="cut")
        update_folders(path, [corpus], settings)
        seconds = round(time.perf_counter() - began, 1)
    with Index.open(path) as index:
        about = index.about
    size = {"passages": about["passages"], "chunking": about["chunking"]}
    return size if seconds is None else {**size, "seconds_to_build": seconds}


def difference_from_trec_eval(scores: Any, judgements: Any) -> float | str:
    """The largest difference of any score of any query from pytrec_eval's."""
    try:
        import pytrec_eval
    except ImportError:
        return NOT_INSTALLED

    measures = {"ndcg_cut.10", "recall.100", "recip_rank"}
    theirs = pytrec_eval.RelevanceEvaluator(judgements, measures).evaluate(scores.run)
    return max(
        abs(ours[name] - theirs[query][other])
        for query, ours in scores.queries.items()
        for name, other in MEASURES.items()
        if query in theirs
    )


def quality(path: Path, queries: Any, judgements: Any) -> dict[str, Any]:
    """Scores of the three ways to search, and how far hybrid search is ahead."""
    from bertsmith.search import Index
    from bertsmith.search.evaluate import compare, evaluate_search

    with Index.open(path) as index:
        results = [
            evaluate_search(index, queries, judgements, mode, DRAWS)
            for mode in ("keywords", "vectors", "hybrid")
        ]
    differences = [difference_from_trec_eval(one, judgements) for one in results]
    return {
        "queries": len(results[0].queries),
        "modes": {one.mode: {**one.means, "intervals": one.intervals} for one in results},
        "hybrid_ahead": [compare(one, results[-1], draws=DRAWS) for one in results[:-1]],
        "largest_difference_from_pytrec_eval": (
            NOT_INSTALLED if NOT_INSTALLED in differences else max(differences)
        ),
    }


def weights(path: Path, queries: Any, judgements: Any) -> dict[str, float]:
    """nDCG@10 of hybrid search on other queries, by the weight of the vectors."""
    from bertsmith.search import Index
    from bertsmith.search.evaluate import evaluate_search

    with Index.open(path) as index:
        scores = {
            weight: evaluate_search(index, queries, judgements, draws=10, weights=(1.0, weight))
            for weight in WEIGHTS
        }
    return {str(weight): round(one.means["ndcg@10"], 4) for weight, one in scores.items()}


def main() -> None:
    options = parser.parse_args()
    from bertsmith.search.evaluate import read_judgements, read_queries

    corpus, asked, judged, best = FILES[options.collection]
    folder = options.data / options.collection
    queries = read_queries(folder / asked)
    if options.weights and options.collection == "scifact":
        judged = "qrels_train.tsv.xz"
    judgements = read_judgements(folder / judged, best)
    if options.collection == "cranfield":
        judgements = {
            name: grades for name, grades in judgements.items() if int(name) % 2 == options.weights
        }
    content = json.loads(options.out.read_text()) if options.out.exists() else {}
    for pair in options.models:
        name, _, model = pair.partition("=")
        name += "-first-tokens" if options.first_tokens else ""
        path = options.indexes / f"{options.collection}-{name}"
        about = build(path, folder / corpus, model, options.first_tokens)
        if options.weights:
            result: Any = {"queries": len(judgements), **weights(path, queries, judgements)}
        else:
            result = {**about, **quality(path, queries, judgements)}
        title = options.collection + (", weights of vectors" if options.weights else "")
        content.setdefault(title, {})[name] = result
        options.out.write_text(json.dumps(content, indent=2) + "\n")
        print(json.dumps({title: {name: result}}))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    main()
