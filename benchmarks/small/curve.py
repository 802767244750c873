"""The loss and speed of pre-training runs: python benchmarks/small/curve.py RUN... --out NAME

NAME.json holds the mean masked-LM loss of each hundred steps and every evaluation, which NAME.png
shows, and how fast each stage was; of a second RUN, which continues the first, the tokens are
counted on. Without a RUN, the picture is drawn again from the JSON.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from statistics import mean
from typing import Any

EACH = 100  # steps in a point


def thinned(runs: list[Path]) -> dict[str, Any]:
    """Million tokens and loss: of training, of evaluations (with accuracy); and where runs end."""
    training, held, ends, before = [], [], [], 0
    for run in runs:
        block, tokens = [], before
        with (run / "log.jsonl").open(encoding="utf-8") as lines:
            for line in lines:
                entry = json.loads(line)
                if "held_out_masked_lm" in entry:
                    found = (entry["held_out_masked_lm"], entry["held_out_masked_lm_accuracy"])
                    held.append((round(tokens / 1e6), *(round(one, 4) for one in found)))
                if "loss" not in entry:
                    continue
                tokens = before + entry["tokens"]
                block.append(entry["masked_lm"])
                if len(block) == EACH:
                    training.append((round(tokens / 1e6, 1), round(mean(block), 4)))
                    block = []
        before = tokens
        ends.append(round(tokens / 1e6))
    return {"training": training, "held_out": held, "ends": ends}


def speeds(run: Path) -> list[dict[str, Any]]:
    """For each stage: tokens a second, in its steps and with all between them; its first step."""
    recipe = tomllib.loads((run / "recipe.toml").read_text("utf-8"))
    with (run / "timing.jsonl").open(encoding="utf-8") as lines:
        steps = [row for row in map(json.loads, lines) if "seconds" in row]
    found = []
    for stage in recipe["stages"]:
        some, steps = steps[: stage["steps"] or None], steps[stage["steps"] or len(steps) :]
        first, *rest = some  # the first one is compiled for
        tokens = sum(row["tokens"] for row in rest)
        found.append(
            {
                "length": stage["length"],
                "steps": len(some),
                "seconds_of_the_first": first["seconds"],
                "tokens_per_second_in_steps": round(tokens / sum(r["seconds"] for r in rest)),
                "tokens_per_second": round(tokens / (rest[-1]["elapsed"] - first["elapsed"])),
            }
        )
    return found


def draw(curve: dict[str, Any], path: Path) -> None:
    """Training as a line, held-out text as points."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    axes.plot(*zip(*curve["training"], strict=True), color="#3b6ea5", label="training")
    held = [(tokens, loss) for tokens, loss, _ in curve["held_out"]]
    axes.plot(*zip(*held, strict=True), "o", color="#c0504d", label="held out")
    axes.set(xlabel="million tokens", ylabel="masked LM loss", ylim=(2, 5))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Store and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    stored = asked.out.with_suffix(".json")
    if asked.runs:
        found = thinned(asked.runs) | {"stages": [one for run in asked.runs for one in speeds(run)]}
        stored.write_text(json.dumps(found) + "\n", "utf-8")
    draw(json.loads(stored.read_text("utf-8")), asked.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
