"""Draw benchmarks/results/*.json as one picture, benchmarks/results/speed.png."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RESULTS = Path(__file__).parent / "results"
OURS, OTHERS = "#1f6f8b", "#c4c9cd"


def bars(axes: Any, title: str, unit: str, rows: dict[str, float]) -> None:
    """One row a contender, ours in colour, the value beside each."""
    names = list(rows)[::-1]
    values = [rows[name] for name in names]
    colours = [OURS if name.startswith("bertsmith") else OTHERS for name in names]
    axes.barh(names, values, color=colours)
    for place, value in enumerate(values):
        axes.text(value, place, f" {value:,.3g}", va="center", fontsize=8)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(unit, fontsize=8)
    axes.set_xlim(0, max(values) * 1.15)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def panels() -> list[tuple[str, str, dict[str, float]]]:
    """Title, unit and bars of every panel there is a result for."""
    found = []
    cpu = RESULTS / "cpu_embedding.json"
    if cpu.is_file():
        result = json.loads(cpu.read_text())
        rows = {name: row["texts_per_second"] for name, row in result["contenders"].items()}
        title = f"Embedding with BERT-base, {result['threads']} CPU threads"
        found.append((title, "texts per second", rows))
    gpu = RESULTS / "gpu_forward.json"
    if gpu.is_file():
        result = json.loads(gpu.read_text())
        for model in result["models"]:
            rows = {name: speed / 1e6 for name, speed in model["tokens_per_second"].items()}
            title = f"{model['model']} forward, bf16, one {result['gpu'].split()[-1]}"
            found.append((title, "million tokens per second", rows))
    steps = RESULTS / "gpu_pretrain.json"
    if steps.is_file():
        result = json.loads(steps.read_text())
        rows = {
            f"{row['contender']}, rows {row['fill']:.0%} full": row["tokens_per_second"] / 1e6
            for row in result["results"]
            if (row["size"], row["dropout"], row["length"]) == ("12x768", 0, 128)
        }
        title = f"BERT-base pre-training steps, bf16, one {result['device'].split()[-1]}"
        found.append((title, "million tokens per second", rows))
    return found


def main() -> None:
    drawn = panels()
    heights = [len(rows) + 1.5 for _, _, rows in drawn]
    figure, axes = plt.subplots(
        len(drawn), 1, figsize=(8, sum(heights) * 0.26), height_ratios=heights, squeeze=False
    )
    for place, (title, unit, rows) in zip(axes.flat, drawn, strict=True):
        bars(place, title, unit, rows)
    figure.tight_layout()
    figure.savefig(RESULTS / "speed.png", dpi=110)


if __name__ == "__main__":
    main()
