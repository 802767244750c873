"""`finetune --average`: scores on a test file with and without the average of the seeds.

    python benchmarks/average.py --data DATA --jobs 12 --out benchmarks/results/average.json

DATA is a folder with GLUE's tasks. Every fifth training example is dev data, which chooses the best
of three seeds or an average; the official dev file is the test data and chooses nothing. Each task
is repeated with other seeds. A stored result is not computed again.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

SEEDS = 3


def compared(options: argparse.Namespace, task: str, repeat: int) -> dict[str, Any]:
    """Dev and test scores of the best seed, and of the best seed or average."""
    import torch

    from bertsmith.finetuning import Splits, finetune
    from bertsmith.tasks.glue import glue_folders, read_glue

    torch.set_num_threads(options.threads)
    train, test = (
        read_glue(glue_folders(options.data)[task], task, split) for split in ("train", "dev")
    )
    examples = train.gold()[: options.train or None]
    dev = replace(train, examples=examples[::5])
    kept_apart = {id(example) for example in dev.examples}
    train = replace(train, examples=[one for one in examples if id(one) not in kept_apart])
    row: dict[str, Any] = {"task": task, "repeat": repeat, "model": options.model}
    for name in ("best seed", "average"):
        result = finetune(
            options.model,
            Splits(train, dev, test),
            device=options.device,
            seed=100 * repeat,
            seeds=SEEDS,
            average=name == "average",
        )
        row["metric"] = result.metric
        row[name] = {
            split: (result.kept.scores[split] or {})[result.metric] for split in ("dev", "test")
        }
    tried = result.content["average"]
    return row | {"kept": tried["kept"], "tried": tried["tried"], "members": tried["members"]}


def main() -> None:
    """Compute what is not stored yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="bertsmith-small")
    parser.add_argument("--tasks", nargs="+", default=["cola", "mrpc", "rte"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--train", type=int, default=0, help="first training examples; 0: all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = json.loads(options.out.read_text("utf-8")) if options.out.exists() else []
    done = {(row["task"], row["repeat"], row["model"]) for row in rows}
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        waiting = [
            pool.submit(compared, options, task, repeat)
            for repeat in range(options.repeats)
            for task in options.tasks
            if (task, repeat, options.model) not in done
        ]
        for ended in as_completed(waiting):
            rows.append(ended.result())
            options.out.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
            shown = {key: rows[-1][key] for key in ("task", "repeat", "best seed", "average")}
            print(json.dumps(shown), flush=True)


if __name__ == "__main__":
    main()
