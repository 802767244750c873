"""Few labels: the accuracy after contrastive training of so many steps, as `--auto` does it.

    python benchmarks/contrastive_steps.py bertsmith-embed MINILM --steps 8 32 80

The sets are among those that settings are chosen on (frozen_sets.py): texts of IMDb and questions
of SubjQA, cut to 300 characters. Draws of 8 and 16 texts a label are scored on 400 others.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from statistics import mean
from typing import Any

from frozen_sets import SETS

from bertsmith.finetuning import Splits, auto, finetune
from bertsmith.tasks.read import read_data

TESTED = 400


def contrastive_only(selection: Any, first: Any) -> Any:
    """In place of the comparison of all candidates: contrastive training alone."""
    way = auto.Candidate("contrastive", selection._contrastive, str(selection.plan.model))
    return selection._result(way, way.fit(way, selection.data, 600.0))


def main() -> None:
    """Train on each draw with each number of steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--steps", nargs="+", type=int, default=[8, 32, 80])
    parser.add_argument("--sets", nargs="+", default=["imdb", "subjqa"])
    parser.add_argument("--shots", nargs="+", type=int, default=[8, 16])
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("contrastive_steps.json"))
    options = parser.parse_args()
    auto.ModelSelection.run = contrastive_only  # type: ignore[method-assign]
    results: dict[str, Any] = {}
    for name in options.sets:
        rows = [{"text": text[:300], "label": str(label)} for text, label in SETS[name]()]
        for shots in options.shots:
            for draw in range(options.draws):
                random.Random(draw).shuffle(rows)
                test, rest = rows[:TESTED], rows[TESTED:]
                labels = sorted({row["label"] for row in rows})
                few = [[row for row in rest if row["label"] == label][:shots] for label in labels]
                train = [row for group in few for row in group]
                data = Splits(read_data(train, "classification"), read_data(test, "classification"))
                for model in options.models:
                    for steps in options.steps:
                        auto.WARM_EPOCHS = -(-steps // -(-len(train) // auto.WARM_BATCH))
                        result = finetune(model, data, auto=True, minutes=10)
                        score = result.content["dev"]["accuracy"]
                        key = f"{name}, {shots} texts a label, {Path(model).name}, {steps} steps"
                        results.setdefault(key, []).append(score)
                        print(key, draw, score, flush=True)
                        options.out.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    for key, scores in results.items():
        print(f"{100 * mean(scores):5.1f}  {key}")


if __name__ == "__main__":
    main()
