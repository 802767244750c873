"""Planted wrong labels: precision and recall of those that are found, beside cleanlab.

    python -m venv CLEAN && CLEAN/bin/pip install cleanlab scikit-learn
    python benchmarks/wrong_labels.py --cleanlab CLEAN/bin/python --out FILE.json

5% or 15% of the labels of 2,000 rows are replaced by another label. Both read the same out-of-fold
probabilities; cleanlab also runs as it comes, with its own cross-validation of scikit-learn's
logistic regression on the same vectors. Scores are those of a model of the rows that are left, on
2,000 others with their own labels.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from frozen_sets import REPORTED, FrozenSet, fitted
from sklearn.model_selection import StratifiedKFold

from bertsmith.metrics.label_errors import wrong_labels

ROWS, SHARES, DRAWS = 2000, (0.05, 0.15), 3
THEIRS = """
import sys, warnings
from pathlib import Path
import numpy as np
from cleanlab.classification import CleanLearning
from cleanlab.filter import find_label_issues
from sklearn.linear_model import LogisticRegression
warnings.simplefilter("ignore")
for path in sorted(Path(sys.argv[1]).glob("*.npz")):
    data = np.load(path)
    same = find_label_issues(data["given"], data["chances"], n_jobs=1)
    learner = CleanLearning(LogisticRegression(), seed=0, find_label_issues_kwargs={"n_jobs": 1})
    own = learner.find_label_issues(data["vectors"], data["given"])["is_label_issue"].to_numpy()
    np.savez(path.with_suffix(".found"), same=np.flatnonzero(same), own=np.flatnonzero(own))
"""


def case(data: FrozenSet, share: float, seed: int) -> dict[str, Any]:
    """Rows with planted errors and out-of-fold probabilities."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(data.rows))
    names, labels = np.unique([label for _, label in data.rows], return_inverse=True)
    train, test = order[:ROWS], order[ROWS : 2 * ROWS]
    given = labels[train].copy()
    bad = random.choice(ROWS, round(share * ROWS), replace=False)
    given[bad] = (given[bad] + random.integers(1, len(names), len(bad))) % len(names)
    vectors, chances = data.vectors[train], np.zeros((ROWS, len(names)))
    for rest, held in StratifiedKFold(5, shuffle=True, random_state=0).split(vectors, given):
        model = fitted(vectors[rest], given[rest])
        chances[np.ix_(held, model.classes_)] = model.predict_proba(vectors[held])
    return {
        "set": data.name,
        "share": share,
        "seed": seed,
        "given": given,
        "chances": chances,
        "vectors": vectors,
        "bad": bad,
        "test": (data.vectors[test], labels[test]),
    }


def judged(one: dict[str, Any], found: Any) -> dict[str, float]:
    """Precision, recall and F1 of found rows, and the score without them."""
    hits = len(set(found.tolist()) & set(one["bad"].tolist()))
    kept = np.setdiff1d(np.arange(ROWS), found)
    vectors, labels = one["test"]
    score = (fitted(one["vectors"][kept], one["given"][kept]).predict(vectors) == labels).mean()
    return {
        "found": len(found),
        "precision": hits / max(1, len(found)),
        "recall": hits / len(one["bad"]),
        "f1": 2 * hits / max(1, len(found) + len(one["bad"])),
        "score_after": float(score),
    }


def main() -> None:
    """Plant, find, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(REPORTED))
    parser.add_argument("--cleanlab", required=True, help="a Python with cleanlab")
    parser.add_argument("--cache", type=Path, default=Path("build/vectors"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    cases = [
        case(data, share, seed)
        for data in (FrozenSet(name, given.cache) for name in given.sets.split(","))
        for share in SHARES
        for seed in range(DRAWS)
    ]
    with TemporaryDirectory() as folder:
        for number, one in enumerate(cases):
            arrays = {name: one[name] for name in ("given", "chances", "vectors")}
            np.savez(Path(folder) / f"{number:03}.npz", **arrays)
        subprocess.run([given.cleanlab, "-c", THEIRS, folder], check=True)
        theirs = [np.load(Path(folder) / f"{n:03}.found.npz") for n in range(len(cases))]
        theirs = [{name: one[name] for name in ("same", "own")} for one in theirs]
    results: dict[str, Any] = {}
    for one, other in zip(cases, theirs, strict=True):
        ways = {
            "nothing left out": np.array([], dtype=int),
            "bertsmith": wrong_labels(one["given"], one["chances"]),
            "cleanlab, same probabilities": other["same"],
            "cleanlab, its own defaults": other["own"],
            "all planted left out": one["bad"],
        }
        place = results.setdefault(f"{one['set']} {one['share']:.0%}", {})
        for name, found in ways.items():
            place.setdefault(name, []).append(judged(one, found))
    content = {
        name: {
            way: {key: round(float(np.mean([row[key] for row in rows])), 4) for key in rows[0]}
            for way, rows in ways.items()
        }
        for name, ways in results.items()
    }
    text = json.dumps({"rows": ROWS, "draws": DRAWS, "sets": content}, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
