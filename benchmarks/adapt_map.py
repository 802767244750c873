"""What the linear map of `adapt` gains: nDCG@10 of judged queries before and after.

    python benchmarks/adapt_map.py cranfield --data DATA --model bertsmith-embed
    python benchmarks/adapt_map.py scifact --data DATA

One vector for each document, all documents learned from, no time limit. Pairs are titles and two
sentences of each abstract, with the abstract. The temperature was chosen by Cranfield's odd
queries, with the first version of bertsmith-embed. Results are added to --out.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from adapt import judged
from search_quality import FILES

from bertsmith.infer.opening import open_model
from bertsmith.ledger import Ledger
from bertsmith.metrics.labels import weighted_mean
from bertsmith.metrics.paired import resample_pair
from bertsmith.metrics.ranking import ndcg, ordered
from bertsmith.search import Index
from bertsmith.search.adapting import learned_map
from bertsmith.search.build import BuildSettings, add_documents
from bertsmith.search.documents import read_documents
from bertsmith.search.fuse import fuse
from bertsmith.tasks.embedding import embed

SENTENCES, DEPTH, WEIGHTS = 2, 1000, (0.7, 1.0)


def unit(vectors: Any) -> Any:
    """Vectors of length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def pairs_of(bodies: list[str]) -> list[tuple[int, str]]:
    """Sentences with the number of their abstract."""
    draws, pairs = np.random.default_rng(0), []
    for number, body in enumerate(bodies):
        parts = [one for one in re.split(r"(?<=\.)\s+", body) if 6 <= len(one.split()) <= 40]
        if len(parts) > SENTENCES:
            chosen = draws.choice(len(parts), SENTENCES, replace=False)
            pairs += [(number, parts[place]) for place in chosen]
    return pairs


def main() -> None:
    """Embed, learn, and score both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("collection", choices=("scifact", "cranfield"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--model", default="bertsmith-embed")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/adapt_map.json"))
    given = parser.parse_args()
    folder, name = given.data / given.collection, given.collection
    documents = list(read_documents(folder / FILES[name][0], Ledger()))
    queries, choosing, reported = judged(given.data, name)
    grades = {**choosing, **reported}
    vectors = partial(embed, open_model(given.model, progress=False), normalise=True)
    bodies = [one.text.removeprefix(one.title).strip() for one in documents]
    whole = vectors([f"{one.title}\n{body}" for one, body in zip(documents, bodies, strict=True)])
    texts, names = vectors(bodies), list(grades)
    asked = vectors([queries[name] for name in names])
    titled = [n for n, one in enumerate(documents) if one.title]
    pairs = [(n, documents[n].title) for n in titled] + pairs_of(bodies)
    owners = np.array([number for number, _ in pairs])
    order = np.random.default_rng(1).permutation(len(documents))
    weight = learned_map(vectors([text for _, text in pairs]), texts[owners], order[owners]).numpy()
    with tempfile.TemporaryDirectory() as place:
        rows = [{"id": one.id, "title": one.title, "text": one.text} for one in documents]
        settings = BuildSettings(keywords_only=True, passage_size=100_000, overlap=0)
        add_documents(Path(place) / "index", rows, settings)
        with Index.open(Path(place) / "index") as index:
            ids = {number: name for number, (name, _) in index.places().items()}
            words = [index.rankings(queries[name])[0] for name in names]
    passage = {name: number for number, name in ids.items()}
    scores: dict[str, dict[str, list[float]]] = {}
    for side, change in (("before", np.eye(len(weight))), ("after", weight)):
        cosines = unit(asked @ change.T) @ unit(whole @ change.T).T
        for row, name, own in zip(cosines, names, words, strict=True):
            best = [place for place in np.argsort(-row)[:DEPTH] if documents[place].id in passage]
            near = [(passage[documents[place].id], float(row[place])) for place in best]
            rankings = {"vectors": near}
            for one in WEIGHTS:
                rankings[f"hybrid, weight {one}"] = fuse(own, near, (1.0, one), "min-max")
            for mode, ranking in rankings.items():
                ranked = ordered({ids[number]: score for number, score in ranking})
                scores.setdefault(mode, {}).setdefault(side, []).append(ndcg(ranked, grades[name]))
    result: dict[str, Any] = {"model": given.model, "pairs": len(pairs)}
    for part, own in (("reported", reported), ("choosing", choosing)):
        some = [place for place, name in enumerate(names) if name in own]
        for mode, sides in scores.items():
            one, two = ([sides[side][place] for place in some] for side in ("before", "after"))
            gain = resample_pair(
                partial(weighted_mean, one), partial(weighted_mean, two), len(some)
            )
            means = {"before": float(np.mean(one)), "after": float(np.mean(two))}
            result[f"{part}, {mode}"] = {"queries": len(some), **means, **asdict(gain)}
    content = json.loads(given.out.read_text("utf-8")) if given.out.exists() else {}
    content[given.collection] = result
    given.out.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
