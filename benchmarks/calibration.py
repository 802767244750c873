"""How far are the confidences of fine-tuned classifiers from their accuracy?

    python benchmarks/calibration.py --data ../shared/data --out results.json
    python benchmarks/calibration.py --data DATA --device cuda --dtype bfloat16 --jobs 15 --out OUT

Each run is `bertsmith finetune` without options on at most 3,668 rows (as many as MRPC), a tenth
of them held out; the temperature is fitted on it. Rows that were not used (at most 5,000; MRPC
and RTE: their dev files) are the test. Expected calibration errors on them are stored with and
without the temperature, and `floor`: the mean error of a model with the same confidences that is
right exactly as often as they say, which is above 0 since the test is finite.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import random
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

ROWS, TEST = 3668, 5000
TASKS = ("mrpc", "rte", "cola", "sst2", "banking77", "ag_news")
FILES = {"banking77": "banking77/train.csv.xz", "ag_news": "ag_news_partial/test.csv.xz"}
DRAWS = 200  # simulated tests for the floor


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--model", default="bertsmith-small")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def splits(data: Path, task: str, seed: int) -> Any:
    """Rows to learn from, a tenth of them held out, and rows to test on."""
    from bertsmith.tasks.glue import glue_folders, read_glue
    from bertsmith.tasks.read import read_data
    from bertsmith.tasks.splits import Splits, split_off

    if task in FILES:
        reading: dict[str, Any] = {}
        if task == "ag_news":
            reading = {"header": False, "columns": {"text": "3", "label": "1"}}
        train = read_data(data / FILES[task], **reading)
    else:
        folder = glue_folders(data)[task]
        train = read_glue(folder, task, "train")
    examples = train.gold()
    random.Random(seed).shuffle(examples)
    rest = replace(train, examples=examples[ROWS : ROWS + TEST])
    test = read_glue(folder, task, "dev") if task in ("mrpc", "rte") else rest
    learned, dev, _ = split_off(replace(train, examples=examples[:ROWS]), 0.1, seed)
    return Splits(learned, dev, test)


def floor(confidences: Any) -> float:
    """The mean calibration error of predictions that are right as often as they say."""
    from bertsmith.metrics import calibration

    drawn = np.random.default_rng(0).random((DRAWS, len(confidences))) < np.array(confidences)
    return mean(calibration(confidences, hits).expected for hits in drawn)


def one(asked: argparse.Namespace, task: str, seed: int) -> dict[str, Any]:
    """Fine-tune once."""
    import torch

    from bertsmith.finetuning import finetune

    if asked.jobs > 1:
        torch.set_num_threads(1)
    given: dict[str, Any] = {"seed": seed, "device": asked.device, "dtype": asked.dtype}
    result = finetune(asked.model, splits(asked.data, task, seed), **given)
    test, fitted = result.kept.test, result.extras["calibration"]
    confidences = [min(1.0, prediction.confidence) for prediction in test.predictions]
    return {
        "task": task,
        "seed": seed,
        "rows": len(test.predictions),
        "accuracy": test.scores["accuracy"],
        "temperature": fitted["temperature"],
        "fitted_on": fitted["examples"],
        "before": fitted["test_error_before"],
        "after": fitted["test_error_after"],
        "floor": floor(confidences),
    }


def main() -> None:
    """Run everything; print a line a task."""
    asked = options()
    rows: list[dict[str, Any]] = []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(asked.jobs, spawn) as pool:
        todo = [(task, seed) for seed in range(asked.seeds) for task in asked.tasks]
        for done in as_completed([pool.submit(one, asked, *pair) for pair in todo]):
            rows.append(done.result())
            print(json.dumps(rows[-1]), flush=True)
            machine = f"{asked.device}, {asked.dtype}, {platform.processor() or platform.machine()}"
            content = {"model": asked.model, "machine": machine, "rows": rows}
            asked.out.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    print("| task | runs | test rows | accuracy | temperature | before | after | floor |")
    print("| --- " * 8 + "|")
    for task in asked.tasks:
        own = [row for row in rows if row["task"] == task]
        cells = [f"{mean(row[key] for row in own):.3f}" for key in ("accuracy", "temperature")]
        cells += [f"{mean(row[key] for row in own):.3f}" for key in ("before", "after", "floor")]
        print(f"| {task} | {len(own)} | {own[0]['rows']:,} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
