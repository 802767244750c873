"""Few labels: vectors of another encoder beside those of bertsmith-embed, what `--auto` expects.

    python benchmarks/named_encoder.py MINILM

Logistic regression on frozen vectors of 8, 16 and 64 texts a label, 20 draws of 900 texts, scored
on the others. The sets are those that settings are chosen on (frozen_sets.py, with at most six
labels); of IMDb, SubjQA and CoLA bertsmith-embed has read texts without their labels, of SQuAD not.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
from frozen_sets import CHOSEN_ON, LABELS, SETS, SHORT, fitted

import bertsmith

TEXTS, DRAWS, SHOTS = 900, 20, (8, 16, 64)


def score(vectors: Any, labels: Any, learned: Any) -> float:
    """The accuracy on all texts but those that were learned from."""
    centred = vectors - vectors[learned].mean(0)
    centred /= np.sqrt((centred[learned] ** 2).sum(1).mean())
    others = np.setdiff1d(np.arange(len(labels)), learned)
    model = fitted(centred[learned], labels[learned])
    return float(model.score(centred[others], labels[others]))


def main() -> None:
    """Compare the encoders on every set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/named_encoder.json"))
    given = parser.parse_args()
    models = [bertsmith.load(name, progress=False) for name in ("bertsmith-embed", given.model)]
    results = {}
    everything: dict[int, list[float]] = {shots: [] for shots in SHOTS}
    for name in CHOSEN_ON:
        rows = SETS[name]()
        random.Random(0).shuffle(rows)
        few = sorted({label for _, label in rows})[:LABELS]
        rows = [row for row in rows if row[1] in few]
        texts = [text[: SHORT.get(name)] for text, _ in rows[:TEXTS]]
        labels = np.array([label for _, label in rows[:TEXTS]])
        own, other = (model.embed(texts, normalise=True) for model in models)
        for shots in SHOTS:
            gains = []
            for draw in range(DRAWS):
                order = np.random.RandomState(draw).permutation(len(labels))
                parts = [order[labels[order] == label][:shots] for label in np.unique(labels)]
                learned = np.concatenate(parts)
                gains.append(score(other, labels, learned) - score(own, labels, learned))
            spread = {"gain": float(np.mean(gains)), "deviation": float(np.std(gains))}
            results[f"{name}, {shots} texts a label"] = spread
            everything[shots] += gains
    for shots, gains in everything.items():
        spread = {"gain": float(np.mean(gains)), "deviation": float(np.std(gains))}
        results[f"all sets, {shots} texts a label"] = spread
    given.out.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
