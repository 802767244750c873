"""Does the forecast of a learning curve hold? A fifth of the labels forecasts the score of all.

    python benchmarks/learning_curve.py --out benchmarks/results/learning_curve.json

A trial draws N rows of a set and gives a fifth of them to `learning_curve`. The score of a model of
all N rows, on all other rows, is compared with the stated 90% interval. Settings of the forecast
were chosen on other sets than those reported (`--sets cola,imdb,domains`).
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from frozen_sets import REPORTED, FrozenSet

from bertsmith.label.curve import learning_curve

SIZES = (750, 1500, 2500, 4000)  # N


def trial(data: FrozenSet, size: int, seed: int) -> dict[str, Any]:
    """One forecast, and what came of it."""
    order = np.random.default_rng(seed).permutation(len(data.rows)).tolist()
    few, many, rest = order[: size // 5], order[:size], order[size:]
    began = time.process_time()
    curve = learning_curve(
        "bertsmith-embed", data.part(few), learn=data.learn, repeats=1, seed=seed
    )
    seconds = time.process_time() - began
    test = data.part(rest).examples
    scores = []
    for rows in (few, many):
        values = data.learn(data.part(rows))(test)
        scores.append(np.mean([a.value == b.label for a, b in zip(values, test, strict=True)]))
    now, true = map(float, scores)
    said, gain = curve.score(size), curve.gain(size - len(few))
    return {
        "set": data.name,
        "labels": len(few),
        "forecast_for": size,
        "seed": seed,
        "now": now,
        "true": true,
        "forecast": vars(said),
        "gain": vars(gain),
        "inside": said.low <= true <= said.high,
        "gain_inside": gain.low <= true - now <= gain.high,
        "cpu_seconds": round(seconds, 2),
    }


def main() -> None:
    """Run the trials and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(REPORTED))
    parser.add_argument("--draws", type=int, default=5, help="draws of each size")
    parser.add_argument("--add", action="store_true", help="add to the trials in the file")
    parser.add_argument("--cache", type=Path, default=Path("build/vectors"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    given.cache.mkdir(parents=True, exist_ok=True)
    trials = []
    if given.out and given.add and given.out.exists():
        trials = json.loads(given.out.read_text())["each"]
    for name in given.sets.split(","):
        data = FrozenSet(name, given.cache)
        own = []
        for seed in range(given.draws):
            own += [trial(data, size, seed) for size in SIZES]
        trials += own
        print(name, json.dumps(summary(own)), flush=True)
    content = {"trials": len(trials), "all": summary(trials)}
    content["sets"] = {
        name: summary([one for one in trials if one["set"] == name])
        for name in dict.fromkeys(one["set"] for one in trials)
    }
    print(json.dumps(content["all"]))
    if given.out:
        content["each"] = trials
        given.out.write_text(json.dumps(content, indent=1) + "\n")


def summary(trials: list[dict[str, Any]]) -> dict[str, float]:
    """How often intervals held, and how wide they were, in points."""

    def mean(values: Any) -> float:
        return round(float(np.mean(list(values))), 4)

    return {
        "interval_holds_true_score": mean(one["inside"] for one in trials),
        "gain_interval_holds": mean(one["gain_inside"] for one in trials),
        "width": mean(one["forecast"]["high"] - one["forecast"]["low"] for one in trials),
        "gain_width": mean(one["gain"]["high"] - one["gain"]["low"] for one in trials),
        "error": mean(abs(one["forecast"]["value"] - one["true"]) for one in trials),
        "bias": mean(one["forecast"]["value"] - one["true"] for one in trials),
        "true_gain": mean(one["true"] - one["now"] for one in trials),
        "cpu_seconds": mean(one["cpu_seconds"] for one in trials),
    }


if __name__ == "__main__":
    main()
