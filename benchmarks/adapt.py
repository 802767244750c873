"""Adapting a model to documents, learned weights and int8 vectors: what search gains or loses.

    python benchmarks/adapt.py cranfield --index cranfield-minilm --minutes 5
    python benchmarks/adapt.py scifact --index scifact-minilm --only weights int8
    python benchmarks/adapt.py unrelated --minutes 2

The indexes are those of benchmarks/search_quality.py. `adapt` trains on the documents alone; its
settings were chosen on SciFact's train queries and Cranfield's odd ones, and the queries that are
scored here are SciFact's test queries and Cranfield's even ones. `weights` learns the weights of
hybrid search on the former and scores the latter. `int8` rounds the vectors. `unrelated` is a
collection in which nothing can be learned: Cranfield's abstracts under titles of other abstracts.
Results are added to --out.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("collection", choices=("scifact", "cranfield", "unrelated"))
parser.add_argument("--index", type=Path, help="the index of the collection")
parser.add_argument("--minutes", type=float, default=5.0)
parser.add_argument("--only", nargs="*", default=["adapt", "weights", "int8"])
parser.add_argument("--data", type=Path, default=Path("../shared/data"))
parser.add_argument("--out", type=Path, default=Path("benchmarks/results/adapt.json"))


def judged(folder: Path, collection: str) -> tuple[Any, Any, Any]:
    """Queries, judgements to choose by, and judgements that are reported."""
    from bertsmith.search.evaluate import read_judgements, read_queries

    if collection == "scifact":
        files = (folder / collection / f"qrels_{name}.tsv.xz" for name in ("train", "test"))
        choose, report = map(read_judgements, files)
        return read_queries(folder / "scifact" / "queries.jsonl.xz"), choose, report
    grades = read_judgements(folder / "cranfield" / "cranqrel.xz", 1)
    odd, even = ({q: g for q, g in grades.items() if int(q) % 2 == n} for n in (1, 0))
    return read_queries(folder / "cranfield" / "cran.qry.xz"), odd, even


def adapted(index: Path, minutes: float, queries: Any, judgements: Any) -> dict[str, Any]:
    """The result of an adaptation; the model itself is thrown away."""
    from bertsmith.search import adapt

    with tempfile.TemporaryDirectory() as folder:
        options: Any = {"queries": queries, "judgements": judgements, "minutes": minutes}
        result = adapt(index, Path(folder) / "model", say=print, **options).to_dict()
    return {name: value for name, value in result.items() if name != "out"} | {"minutes": minutes}


def weights(path: Path, queries: Any, choose: Any, report: Any) -> dict[str, Any]:
    """Weights that are learned on some queries, and what they are worth on others."""
    from bertsmith.search import Index, evaluate_search, learn_weights
    from bertsmith.search.evaluate import compare

    with Index.open(path) as index:
        before = index.weights
        learned = learn_weights(index, queries, choose)
        index.keep_weights(before)
        old, new = (
            evaluate_search(index, queries, report, weights=pair)
            for pair in (before, learned.weights)
        )
    scores = {"old": old.means["ndcg@10"], "new": new.means["ndcg@10"]}
    return {"learned": learned.to_dict(), "reported": {**scores, "gain": compare(old, new)}}


def rounded(path: Path, queries: Any, report: Any) -> dict[str, Any]:
    """nDCG@10 with vectors in int8 beside float32, and the bytes of both."""
    import numpy as np

    from bertsmith.search import Index, evaluate_search
    from bertsmith.search.evaluate import compare
    from bertsmith.search.segments import stored

    result: dict[str, Any] = {}
    for mode in ("vectors", "hybrid"):
        with Index.open(path) as index:
            plain = evaluate_search(index, queries, report, mode)
            table = index._vectors()
            size = sum(matrix.nbytes for matrix, *_ in table.blocks)
            table.blocks = [
                (stored(matrix, "int8").astype(np.int8), *rest) for matrix, *rest in table.blocks
            ]
            small = sum(matrix.nbytes for matrix, *_ in table.blocks)
            scores = evaluate_search(index, queries, report, mode)
        result[mode] = {"float32": plain.means["ndcg@10"], "int8": scores.means["ndcg@10"]}
        result[mode]["difference"] = compare(plain, scores)
        result["bytes"] = {"float32": size, "int8": small}
    return result


def unrelated(data: Path, minutes: float) -> dict[str, Any]:
    """Cranfield's abstracts, each under the title of another: adapting must replace nothing."""
    from bertsmith.ledger import Ledger
    from bertsmith.search import Index
    from bertsmith.search.documents import read_documents

    documents = list(read_documents(data / "cranfield" / "cran.all.1400.xz", Ledger()))[:400]
    titles = [one.title for one in documents[7:] + documents[:7]]
    rows = [
        {"id": one.id, "title": title, "text": one.text.removeprefix(one.title)}
        for one, title in zip(documents, titles, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        index = Index.create(Path(folder) / "index")
        index.add(rows)
        index.close()
        return adapted(index.path, minutes, None, None)


def main() -> None:
    options = parser.parse_args()
    content = json.loads(options.out.read_text()) if options.out.exists() else {}
    if options.collection == "unrelated":
        results = {"adapt": unrelated(options.data, options.minutes)}
        name = "unrelated titles"
    else:
        queries, choose, report = judged(options.data, options.collection)
        name, results = options.index.name, {}
        if "int8" in options.only:
            results["int8"] = rounded(options.index, queries, report)
        if "weights" in options.only:
            results["weights"] = weights(options.index, queries, choose, report)
        if "adapt" in options.only:
            results["adapt"] = adapted(options.index, options.minutes, queries, report)
    for one in results.values():
        one |= {"threads": os.environ["OMP_NUM_THREADS"], "load": os.getloadavg()[0]}
        one["date"] = time.strftime("%Y-%m-%d")
    content.setdefault(name, {}).update(results)
    options.out.write_text(json.dumps(content, indent=2) + "\n")
    print(json.dumps({name: results}))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    main()
