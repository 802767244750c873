"""The pre-training loop on a GPU: replayed steps, the same without, ready batches, and the plan.

    python benchmarks/gpu_loop.py --corpus PREPARED --minutes 0.6

Each side runs `bertsmith pretrain bertsmith-small` on a prepared corpus without evaluations, and
reports tokens per second over the second half of its steps, data loading included. `ready` cycles
eight loaded steps instead: what the loop would reach if loading cost nothing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from bertsmith.examples.loader import LoadedStep, Loader
from bertsmith.train import pretrain, pretraining
from bertsmith.train.planning import plan
from bertsmith.train.recipe import load_recipe

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--corpus", type=Path, required=True)
parser.add_argument("--recipe", default="bertsmith-small")
parser.add_argument("--minutes", type=float, default=0.6)
parser.add_argument("--sides", nargs="+", default=["replayed", "ready", "eager", "plan"])
parser.add_argument("--set", nargs="*", default=[], help="of the recipe, as `pretrain` takes them")
parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu_loop.json"))
options = parser.parse_args()
CYCLED = 8


def recipe() -> Any:
    """The recipe with the corpus, a short budget and no evaluations."""
    changes = [
        f"data.corpus={options.corpus}",
        f"train.minutes={options.minutes}",
        "evaluate.every=0",
        "evaluate.tokens=0",
        "evaluate.pseudo=0",
        "checkpoint.minutes=0",
        *options.set,
    ]
    return load_recipe(options.recipe, changes)


def cycled(loader: Loader) -> LoadedStep | None:
    """The first steps again and again."""
    kept = loader.__dict__.setdefault("kept", [])
    if len(kept) < CYCLED:
        kept.append(NEXT(loader))
        return kept[-1]
    loader.turn = (getattr(loader, "turn", 0) + 1) % CYCLED  # type: ignore[attr-defined]
    return kept[loader.turn]  # type: ignore[attr-defined, no-any-return]


NEXT, CAN_REPLAY = Loader.next, pretraining.can_replay


def run(side: str) -> dict[str, Any]:
    """Tokens per second of one side, and its losses."""
    Loader.next = cycled if side == "ready" else NEXT  # type: ignore[method-assign, assignment]
    pretraining.can_replay = (lambda *_: False) if side == "eager" else CAN_REPLAY  # type: ignore[assignment]
    torch.compiler.reset()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        pretrain(recipe(), Path(folder) / "run", show="none")
        seconds = time.perf_counter() - began
        lines = (Path(folder) / "run" / "timing.jsonl").read_text("utf-8").splitlines()
        rows = [row for row in map(json.loads, lines) if "seconds" in row]
        lines = (Path(folder) / "run" / "log.jsonl").read_text("utf-8").splitlines()
        losses = [row["loss"] for row in map(json.loads, lines) if "loss" in row]
    half = rows[len(rows) // 2 :]
    spent = half[-1]["elapsed"] - half[0]["elapsed"]
    return {
        "tokens_per_second": round(sum(row["tokens"] for row in half[1:]) / spent),
        "steps": len(rows),
        "seconds_with_compilation": round(seconds, 1),
        "losses_at_steps": {
            n: losses[n - 1] for n in (1, 10, 100, 200, 400, 800) if n <= len(losses)
        },
    }


def main() -> None:
    """Measure and store."""
    known = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
    known |= {"device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"}
    known |= {"torch": torch.__version__}
    loop = known.setdefault("loop", {})
    for side in options.sides:
        if side == "plan":
            loop[side] = plan(recipe())
        else:
            loop[side] = run(side)
        print(side, json.dumps(loop[side]), flush=True)
        options.out.write_text(json.dumps(known, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
