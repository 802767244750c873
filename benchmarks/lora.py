"""LoRA beside full fine-tuning: dev scores, parameters that are trained, and memory on a GPU.

    python benchmarks/lora.py scores --data DATA --train 4000
    python benchmarks/lora.py scores ... --tasks conll2003 --kept-apart 2000 --rate 0.005 --alpha 32
    python benchmarks/lora.py memory

DATA is a folder with glue_sst2 and conll2003_en. `scores` trains bertsmith-small with all
parameters and with LoRA of rank 8, both with their default settings but for --epochs, on the first
--train examples of each task (0: all), and stores every run: the same command goes on where it was
interrupted. `--kept-apart` scores so many examples from the end of the training file instead of the
dev file, to try rates and scales of LoRA. `memory` needs a GPU: it trains a BERT-large with new
weights for some steps of 32 sequences of 128 tokens, with LoRA and recomputed activations, and
stores the peak of the memory that torch reserved.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from bertsmith.checkpoint import Sentence, create, locate, save
from bertsmith.families import preset
from bertsmith.finetuning import Splits, finetune
from bertsmith.tasks.glue import read_glue
from bertsmith.tasks.read import read_data
from bertsmith.tokenizer import Tokenizer

SIDES: dict[str, dict[str, Any]] = {"all": {}, "lora": {"trained": "lora", "lora_rank": 8}}
MODEL = "bertsmith-small"

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("what", choices=["scores", "memory"])
parser.add_argument("--data", type=Path)
parser.add_argument("--tasks", nargs="+", default=["sst2", "conll2003"])
parser.add_argument("--train", type=int, default=0, help="first examples to train on; 0: all")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--seeds", type=int, default=1)
parser.add_argument("--kept-apart", type=int, default=0, help="training examples to score on")
parser.add_argument("--rate", type=float, help="learning rate of LoRA")
parser.add_argument("--alpha", type=float, default=16, help="scale of LoRA")
parser.add_argument("--device", default="cpu")
parser.add_argument("--out", type=Path, default=Path("benchmarks/results/lora.json"))
options = parser.parse_args()


def splits(task: str) -> Splits:
    """The training and dev files of a task."""
    if task == "sst2":
        folder = options.data / "glue_sst2"
        train, dev = (read_glue(folder, task, split) for split in ("train", "dev"))
    else:
        files = {one.name.split(".")[0]: one for one in (options.data / "conll2003_en").iterdir()}
        train, dev = (read_data(files[split], "tagging") for split in ("train", "valid"))
    examples = train.examples
    if options.kept_apart:
        dev = replace(train, examples=examples[-options.kept_apart :])
        examples = examples[: -options.kept_apart]
    return Splits(replace(train, examples=examples[: options.train or None]), dev)


def scores(stored: dict[str, Any]) -> None:
    """Train what is not stored yet."""
    for seed in range(options.seeds):
        for task in options.tasks:
            data = splits(task)
            for side, how in SIDES.items():
                name = f"{task} {side} seed {seed}, {len(data.train)} examples"
                if options.kept_apart:
                    name += f", scored on {len(data.dev or ())} training examples"
                if side == "lora" and (options.rate or options.alpha != 16):
                    how = {**how, "learning_rate": options.rate, "lora_alpha": options.alpha}
                    name += f", rate {options.rate}, alpha {options.alpha:g}"
                if name in stored:
                    continue
                began = time.perf_counter()
                device, settings = options.device, {"seed": seed, "epochs": options.epochs}
                result = finetune(MODEL, data, device=device, **settings, **how)
                counts = result.content["trained_parameters"]
                stored[name] = {
                    "metric": result.metric,
                    "dev": (result.kept.scores["dev"] or {})[result.metric],
                    "trained_parameters": counts["trained"],
                    "trained_share": counts["trained"] / counts["all"],
                    "settings": {
                        name: result.content["settings"][name]
                        for name in ("optimizer", "learning_rate", "epochs", "batch_size")
                    },
                    "seconds": round(time.perf_counter() - began, 1),
                }
                print(name, json.dumps(stored[name]), flush=True)
                write(stored)


def peak(trained: dict[str, Any]) -> dict[str, Any]:
    """The peak memory of some steps of a BERT-large on one GPU."""
    tokenizer = Tokenizer.load(locate(MODEL))
    settings = {**preset("bert-large-uncased"), "pad_token_id": tokenizer.pad_id}
    rows = [{"text": "word " * 126, "label": ("one", "two")[n % 2]} for n in range(32 * 12)]
    how = {"checkpointing": True, "dtype": "bfloat16", "batch_size": 32, "epochs": 1}
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        save(base, create(settings, heads=[], seed=0), tokenizer, Sentence())
        data = Splits(read_data(rows, "classification"))
        finetune(base, data, device="cuda", **how, **trained)
    return {
        "gigabytes_reserved": torch.cuda.max_memory_reserved() / 1e9,
        "gigabytes_allocated": torch.cuda.max_memory_allocated() / 1e9,
        "tokens_per_step": 32 * 128,
        "device": torch.cuda.get_device_name(),
    }


def memory(stored: dict[str, Any]) -> None:
    """Measure each side in a process of its own: the graphs of a run keep their memory."""
    for side, trained in SIDES.items():
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            stored[f"BERT-large, {side}"] = process.submit(peak, trained).result()
        write(stored)
        print(side, json.dumps(stored[f"BERT-large, {side}"]), flush=True)


def write(stored: dict[str, Any]) -> None:
    """Store all results so far."""
    options.out.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    found = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
    {"scores": scores, "memory": memory}[options.what](found)
