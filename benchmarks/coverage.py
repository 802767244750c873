"""Do guarantees hold on new data? Conformal coverage and abstention over random splits.

    python benchmarks/coverage.py --out benchmarks/results/coverage.json

One model of 2,000 rows of each set predicts all others. Each of 100 splits calibrates on 500 of
them and looks at the rest.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from frozen_sets import REPORTED, FrozenSet, fitted

from bertsmith.metrics.conformal import abstention, limit_for, limits

TRAIN, HELD, SPLITS = 2000, 500, 100
COVERAGES, ACCURACIES = (0.8, 0.9, 0.95), (0.85, 0.9, 0.95)


def former(sure: Any, right: Any, wanted: float) -> float:
    """The lowest confidence with the accuracy wanted on the calibration rows, without a bound."""
    order = np.argsort(-sure)
    enough = np.flatnonzero(np.cumsum(right[order]) / np.arange(1, len(order) + 1) >= wanted)
    return float(sure[order][enough[-1]]) if len(enough) else 2.0


def measured(data: FrozenSet) -> dict[str, Any]:
    """Coverage and abstention of one set."""
    labels = np.array([label for _, label in data.rows])
    model = fitted(data.vectors[:TRAIN], labels[:TRAIN])
    chances, labels = model.predict_proba(data.vectors[TRAIN:]), labels[TRAIN:]
    known = np.isin(labels, model.classes_)
    places = np.searchsorted(model.classes_, labels) % len(model.classes_)
    scores = np.where(known, 1 - chances[np.arange(len(labels)), places], 1.0)
    right, sure = model.classes_[chances.argmax(1)] == labels, chances.max(1)
    found: dict[str, list[tuple[float, ...]]] = {}
    for seed in range(SPLITS):
        order = np.random.default_rng(seed).permutation(len(labels))
        held, new = order[:HELD], order[HELD:]
        allowed = limits(scores[held].tolist())
        for coverage in COVERAGES:
            limit = limit_for(allowed, coverage)
            sizes = (1 - chances[new] <= limit).sum(1)
            row = (
                float((scores[new] <= limit).mean()),
                float(sizes.mean()),
                float((sizes == 0).mean()),
            )
            found.setdefault(f"coverage {coverage:g}", []).append(row)
        for wanted in ACCURACIES:
            below, _ = abstention(sure[held].tolist(), right[held].tolist(), wanted)
            for name, limit in (
                ("abstain", below),
                ("without a bound", former(sure[held], right[held], wanted)),
            ):
                answered = sure[new] >= limit
                broken = bool(answered.any()) and right[new][answered].mean() < wanted
                found.setdefault(f"{name} {wanted:g}", []).append((broken, float(answered.mean())))
    content: dict[str, Any] = {"accuracy": round(float(right.mean()), 4)}
    for name, rows in found.items():
        means = [round(float(one), 4) for one in np.mean(rows, axis=0)]
        heads = ("share_of_splits_below", "answered")
        if name.startswith("coverage"):
            heads = ("covered", "set_size", "empty")
        content[name] = dict(zip(heads, means, strict=True))
    return content


def main() -> None:
    """Measure all sets and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=Path("build/vectors"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    content = {name: measured(FrozenSet(name, given.cache)) for name in REPORTED}
    about = {"train": TRAIN, "calibration": HELD, "splits": SPLITS, "sets": content}
    text = json.dumps(about, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
