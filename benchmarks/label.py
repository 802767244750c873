"""Active learning against random order: how many labels 95% of the full score needs.

    BERTSMITH_DATA=.../data python benchmarks/label.py --vectors /tmp/vectors

Every text gets a vector from `bertsmith-embed`, once. A draw takes half of the training texts as
those without labels, and reveals labels batch by batch in two orders: at random, and as `bertsmith
label` chooses (doubtful texts that differ). After each
batch logistic regression is fitted on the vectors (C = 10 on centred vectors of mean squared norm
1, as the fast learner scales them; fixed, not chosen) and scored on the official test data. The
full score is that of all texts of the draw. The held-out share that `bertsmith label` mixes in is
not counted: it would be the same for all orders.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

import bertsmith as bs
from bertsmith.files import finite
from bertsmith.label.choosing import chosen
from bertsmith.metrics.intervals import over_seeds
from bertsmith.tasks.read import read_data

HERE = Path(__file__).resolve()
DATA = Path(os.environ.get("BERTSMITH_DATA", "data"))
# Files of training and test texts, texts of each, and labels in a batch and at most.
SETS: dict[str, Any] = {
    "ag_news": (
        "ag_news_partial/alps_dev.tsv.xz",
        "ag_news_partial/alps_test.tsv.xz",
        *(8000, 3000, 20, 500),
    ),
    "sst2": ("glue_sst2/train.tsv.xz", "glue_sst2/dev.tsv.xz", 8000, 872, 20, 2000),
    "banking77": ("banking77/train.csv.xz", "banking77/test.csv.xz", 10_003, 3080, 308, 3080),
}
ORDERS = ("random", "active")
DRAWS, GOAL, STRENGTH = 5, 0.95, 10.0


def vectors(name: str, folder: Path) -> dict[str, np.ndarray]:
    """Vectors and labels of a data set, computed once and kept in a folder."""
    path = folder / f"{name}.npz"
    if not path.is_file():
        bert, kept = bs.load("bertsmith-embed"), {}
        for part, file, most in zip(("pool", "test"), SETS[name][:2], SETS[name][2:4], strict=True):
            examples = {one.text: one for one in read_data(DATA / file, "classification").gold()}
            listed = list(examples.values())
            order = np.random.default_rng(0).permutation(len(listed))[:most]
            kept[part] = bert.embed([listed[number].text for number in order])
            kept[f"{part}_labels"] = np.array([listed[number].label for number in order])
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(path, **kept)
    return dict(np.load(path))


def probabilities(rows: np.ndarray, labels: np.ndarray) -> Any:
    """A fitted classifier, as a function of vectors to probabilities, and its labels."""
    mean = rows.mean(0)
    scale = float(np.sqrt(np.square(rows - mean).sum(1).mean())) or 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(C=STRENGTH, max_iter=100).fit((rows - mean) / scale, labels)
    return lambda some: model.predict_proba((some - mean) / scale), model.classes_


def stored(folder: Path, name: str, order: str, draw: int) -> Any:
    """One run, kept in a folder: the accuracy after each batch, and with all labels."""
    path = folder / f"{name}-{order}-{draw}.json"
    if not path.is_file():
        start = time.process_time()
        curve, full = run(vectors(name, folder), order, draw, *SETS[name][4:])
        path.write_text(json.dumps([curve, full]), "utf-8")
        print(name, order, draw, curve[-1], f"{full:.4f}, {time.process_time() - start:.0f} s")
    return json.loads(path.read_text("utf-8"))


def run(data: dict[str, np.ndarray], order: str, draw: int, batch: int, most: int) -> Any:
    """The test accuracy after each batch up to the goal, and with all labels of the draw."""
    draws = np.random.default_rng(draw)
    half = np.sort(draws.permutation(len(data["pool"]))[: len(data["pool"]) // 2])
    pool, labels = data["pool"][half], data["pool_labels"][half]

    def accuracy(model: Any) -> float:
        classify, names = model
        guesses = names[classify(data["test"]).argmax(1)]
        return float(np.mean(guesses == data["test_labels"]))

    full = accuracy(probabilities(pool, labels))
    at_random = list(draws.permutation(len(pool)))
    done: list[int] = []
    model, curve = None, []
    while len(done) < most:
        doubts = None
        if model is not None:
            ranked = np.sort(model[0](pool), axis=1)
            doubts = 1 - ranked[:, -1] + ranked[:, -2]
        if order == "active":
            done += chosen(pool, done, batch, doubts, seed=draw)
        else:
            done += at_random[len(done) : len(done) + batch]
        if len(set(labels[done])) > 1:
            model = probabilities(pool[done], labels[done])
            curve.append((len(done), accuracy(model)))
            if curve[-1][1] >= GOAL * full:
                break
    return curve, full


def needed(curve: list[tuple[int, float]], goal: float) -> float | None:
    """The labels at which a curve first reaches a goal, between two batches by a straight line."""
    before = (0, 0.0)
    for count, score in curve:
        if score >= goal:
            share = (goal - before[1]) / max(score - before[1], 1e-9)
            return before[0] + share * (count - before[0])
        before = (count, score)
    return None


def summary(values: list[Any]) -> dict[str, Any]:
    """The mean of some numbers with its 95% t interval; of fewer where some are missing."""
    there = [one for one in values if one is not None]
    if len(there) < 2:
        return {"reached": len(there), "draws": len(values)}
    found = over_seeds(there)
    drawn = {"mean": found.mean, "low": found.low, "high": found.high}
    return {**drawn, "reached": len(there), "draws": len(values)}


def main() -> None:
    """Run all data sets and write benchmarks/results/label.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=Path, required=True, help="folder that keeps vectors")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results" / "label.json")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--draws", type=int, default=DRAWS)
    given = parser.parse_args()
    results: dict[str, Any] = {}
    for name in given.sets:
        data = vectors(name, given.vectors)
        runs = {
            one: [stored(given.vectors, name, one, draw) for draw in range(given.draws)]
            for one in ORDERS
        }
        full = [full for _, full in runs["random"]]
        counts = {
            one: [needed(curve, GOAL * whole) for curve, whole in several]
            for one, several in runs.items()
        }
        base = counts["random"]
        results[name] = {
            "labels": len(set(data["pool_labels"])),
            "texts": len(data["pool"]) // 2,
            "batch": SETS[name][4],
            "full_accuracy": summary(full),
            "needed": {one: {**summary(n), "each": n} for one, n in counts.items()},
            "share_of_random": {
                one: summary([a / b if a and b else None for a, b in zip(n, base, strict=True)])
                for one, n in counts.items()
                if one != "random"
            },
            "curves": {one: [curve for curve, _ in several] for one, several in runs.items()},
        }
        print(name, json.dumps(results[name]["needed"]), flush=True)
    about = {
        "machine": platform.processor() or platform.machine(),
        "goal": GOAL,
        "draws": given.draws,
    }
    given.out.write_text(json.dumps(finite({**about, "sets": results}), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
