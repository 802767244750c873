"""Losses of pre-training in FP8 beside those in bfloat16, on one GPU: same text, seeds and steps.

    python benchmarks/fp8_losses.py CORPUS --steps 450 --seeds 0 1 \
        --out benchmarks/results/fp8_losses.json
    python benchmarks/fp8_losses.py CORPUS --recipe bert-base-no-nsp --steps 2000 --rate 1e-4
    python benchmarks/fp8_losses.py CORPUS --recipe bertsmith-small --steps 2000 --rate 0

By default a ModernBERT of 12 layers of 768, which learns within few hundred steps of 65,536 tokens;
a BERT of that size spends them at the entropy of single words. CORPUS is a folder of `prepare`.
With `--rate 0` the recipe keeps its optimizer, learning rates and batches. A run that diverges is
stored with its error.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from bertsmith.errors import BertsmithError
from bertsmith.train import load_recipe, pretrain

AVERAGED = 50  # losses that a number of the curve is the mean of


def run(options: argparse.Namespace, precision: str, seed: int) -> dict[str, Any]:
    """Train once; the curve has the mean of every second 50 losses."""
    torch._dynamo.reset()
    train: dict[str, Any] = {
        "steps": options.steps, "seed": seed, "precision": precision, "compile": "true",
        "minutes": 0,
    }  # fmt: skip
    if options.rate:
        train |= {"batch_tokens": 65536, "micro_tokens": 65536, "ramp_from": 0, "ramp_steps": 0}
        train |= {"optimizer": "adamw", "learning_rate": options.rate}
        train |= {"schedule": "linear", "warmup": 100}
    changes = [f"train.{key}={value}" for key, value in train.items()]
    changes += ["stages=[]", "data.length=128", "data.workers=8"]
    changes += ["data.format=joined"] if options.rate else []
    changes += ["evaluate.every=0", "evaluate.tokens=131072", "evaluate.pseudo=0"]
    changes += ["checkpoint.every=0", "checkpoint.minutes=0", f"data.corpus={options.corpus}"]
    if options.recipe == "modernbert-base":
        changes.append("model.settings.num_hidden_layers=12")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        summary = pretrain(load_recipe(options.recipe, changes), Path(folder) / "run", show="none")
        lines = (Path(folder) / "run" / "log.jsonl").read_text("utf-8").splitlines()
    losses = [row["loss"] for row in map(json.loads, lines) if "loss" in row]
    means = [sum(losses[n : n + AVERAGED]) / AVERAGED for n in range(0, len(losses), 2 * AVERAGED)]
    return {
        "precision": summary["precision"],
        "seed": seed,
        "seconds": round(time.perf_counter() - began, 1),
        "held_out_loss": round(summary["held_out_masked_lm"], 4),
        "held_out_accuracy": round(summary["held_out_masked_lm_accuracy"], 4),
        "curve": [round(mean, 4) for mean in means],
    }


def main() -> None:
    """Run both precisions with each seed and store the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--recipe", default="modernbert-base")
    parser.add_argument("--steps", type=int, default=450)
    parser.add_argument("--rate", type=float, default=8e-4, help="0: the recipe's own")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/fp8_losses.json"))
    options = parser.parse_args()
    head = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    head |= {"recipe": options.recipe, "steps": options.steps, "rate": options.rate}
    rows = []
    for seed in options.seeds:
        for precision in ("bfloat16", "fp8"):
            try:
                rows.append(run(options, precision, seed))
            except BertsmithError as error:
                rows.append({"precision": precision, "seed": seed, "error": str(error)})
            print(json.dumps(rows[-1]), flush=True)
            text = json.dumps({**head, "runs": rows}, indent=1)
            options.out.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
