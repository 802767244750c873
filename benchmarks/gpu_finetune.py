"""Fine-tuning on a GPU: captured steps, the same without graphs, and a `transformers` Trainer.

    python benchmarks/gpu_finetune.py --data DATA --model bertsmith-small
    python benchmarks/gpu_finetune.py --data DATA --only full --seeds 5

DATA is a folder with glue_sst2 and conll2003_en. `speed` trains all three on the same examples with
AdamW in bfloat16, batches of 32 (SST-2) and 16 (CoNLL-2003), and reports examples per second over
one epoch after a short run that loads kernels; also for a BERT-base with new weights. `full` trains
on all of a task with the settings that the model names, and reports scores and seconds. `families`
compares the first 20 losses of captured and plain steps in float32, for small new models of five
families on three tasks with made-up texts; they may differ by 2e-4.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import torch

from bertsmith.checkpoint import Sentence, create, locate, save
from bertsmith.families import preset
from bertsmith.finetuning import Splits, finetune, settings_for
from bertsmith.tasks.glue import read_glue
from bertsmith.tasks.read import read_data
from bertsmith.tokenizer import Tokenizer

sys.path.insert(0, str(Path(__file__).parent))

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--model", default="bertsmith-small")
parser.add_argument("--only", nargs="+", default=["check", "families", "speed", "full"])
parser.add_argument("--sides", nargs="+", default=["captured", "eager", "trainer"])
parser.add_argument("--tasks", nargs="+", default=["sst2", "conll2003"], help="of `speed`")
parser.add_argument("--examples", type=int, default=8000, help="of an epoch of captured steps")
parser.add_argument("--fewer", type=int, default=3200, help="of the others, which are slower")
parser.add_argument("--seeds", type=int, default=1)
parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu_finetune.json"))
options = parser.parse_args()
TASKS = ("sst2", "conll2003")
BASE = "bert-base-uncased"


def read(task: str) -> tuple[Any, Any]:
    """The training and dev files of a task."""
    if task == "sst2":
        folder = options.data / "glue_sst2"
        return read_glue(folder, "sst2", "train"), read_glue(folder, "sst2", "dev")
    files = {path.name.split(".")[0]: path for path in (options.data / "conll2003_en").iterdir()}
    return read_data(files["train"], "tagging"), read_data(files["valid"], "tagging")


def base_model(folder: Path) -> Path:
    """A BERT-base with new weights and the tokenizer of the other model."""
    tokenizer = Tokenizer.load(locate(options.model))
    settings = {**preset(BASE), "vocab_size": tokenizer.size, "pad_token_id": tokenizer.pad_id}
    save(folder, create(settings, heads=["masked_lm"], seed=0), tokenizer, Sentence())
    return folder


def train(model: str | Path, data: Any, side: str, **given: Any) -> Any:
    """One run without a dev file; captured or not."""
    given["graphs"] = side == "captured"
    settings = {"dtype": "bfloat16", "optimizer": "adamw", "learning_rate": 5e-5, "epochs": 1}
    return finetune(model, Splits(data), device="cuda", **{**settings, **given}).kept


def trainer_speed(model: str | Path, data: Any, count: int, batch_size: int) -> float:
    """Examples per second of a Trainer."""
    import trainer

    few = replace(data, examples=data.examples[:count])
    settings = settings_for(data.task, epochs=1, batch_size=batch_size, learning_rate=5e-5)
    dev = replace(data, examples=data.examples[:16])
    made = trainer.run(locate(model), few, dev, settings, dtype="bfloat16", seed=0, device="cuda")
    return count / made[1]


def speed() -> dict[str, Any]:
    """Examples per second of all sides."""
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        models = {"bertsmith-small": options.model, "bert-base": base_model(Path(folder) / "base")}
        for task in options.tasks:
            data, _ = read(task)
            size = 32 if task == "sst2" else 16
            for name, model in models.items():
                row = rows.setdefault(f"{task} {name}", {})
                for side in options.sides:
                    count = options.examples if side == "captured" else options.fewer
                    for part in (8 * size, count):  # first a short one, which loads kernels
                        if side == "trainer":
                            row[side] = trainer_speed(model, data, part, size)
                            continue
                        few = replace(data, examples=data.examples[:part])
                        run = train(model, few, side, batch_size=size)
                        row[side] = run.history.speed
                    print(task, name, side, round(row[side], 1), flush=True)
                    # A second epoch of shapes that are captured already.
                    if side == "captured":
                        run = train(model, few, side, batch_size=size, epochs=3)
                        row["captured, three epochs"] = run.history.speed
                        print(task, name, "three epochs", round(run.history.speed), flush=True)
                if "trainer" in row:
                    row["ratio"] = row["captured, three epochs"] / row["trainer"]
    return rows


def check() -> dict[str, Any]:
    """Losses of captured steps beside those of the same steps without graphs."""
    rows: dict[str, Any] = {}
    for task in TASKS:
        data, _ = read(task)
        few = replace(data, examples=data.examples[:1600])
        for more in ({}, {"optimizer": "muon", "learning_rate": 4e-4}, {"dtype": "float32"}):
            both = {side: train(options.model, few, side, **more) for side in ("eager", "captured")}
            again = train(options.model, few, "captured", **more)
            one, two, three = (torch.tensor(run.history.losses) for run in (*both.values(), again))
            rows[f"{task} {json.dumps(more)}"] = {
                "mean_gap": float((one - two).abs().mean()),
                "mean_gap_of_first_10": float((one - two)[:10].abs().mean()),
                "gap_of_repeated_run": float((two - three).abs().max()),
                "last_losses": [float(x[-20:].mean()) for x in (one, two)],
            }
            print(task, more, json.dumps(rows[f"{task} {json.dumps(more)}"]), flush=True)
    return rows


SHAPE: dict[str, Any] = {
    "hidden_size": 256,
    "embedding_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "max_position_embeddings": 512,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.05,
}
FAMILIES = {
    "bert": "bert-base-uncased",
    "albert": "albert-base-v2",
    "electra": "electra-small",
    "deberta": "deberta-v3-base",
    "modernbert": "modernbert-base",
}
WORDS = ("river", "storm", "city", "violin", "garden", "letter", "winter", "engine")


def made_up(task: str) -> list[dict[str, Any]]:
    """Rows of a task about texts of 6 to 60 words."""
    random, rows = Random(0), []
    for number in range(640):
        words = random.choices(WORDS, k=random.randint(6, 60))
        place = words.index(words[number % len(words)])
        start = len(" ".join(words[:place])) + (place > 0)
        rows.append(
            {
                "classification": {"text": " ".join(words), "label": words[0]},
                "tagging": {
                    "tokens": words,
                    "tags": ["B-X" if word == "city" else "O" for word in words],
                },
                "answering": {
                    "id": str(number),
                    "question": f"where is the {words[place]}?",
                    "passage": " ".join(words),
                    "answers": [{"text": words[place], "start": start}],
                },
            }[task]
        )
    return rows


def families() -> dict[str, Any]:
    """The largest gap of the first 20 losses of captured and plain steps."""
    rows: dict[str, Any] = {}
    tokenizer = Tokenizer.load(locate(options.model))
    for family, size in FAMILIES.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            known = preset(size)
            settings = {**known, "vocab_size": tokenizer.size, "pad_token_id": tokenizer.pad_id}
            settings |= {key: value for key, value in SHAPE.items() if key in known}
            save(folder / "m", create(settings, heads=[], seed=0), tokenizer, Sentence())
            for task in ("classification", "tagging", "answering"):
                file = folder / f"{task}.jsonl"
                file.write_text("".join(json.dumps(row) + "\n" for row in made_up(task)), "utf-8")
                data = read_data(file, task)
                how: dict[str, Any] = {"dtype": "float32", "batch_size": 32, "dropout": 0.0}
                one, two = (
                    torch.tensor(train(folder / "m", data, side, **how).history.losses[:20])
                    for side in ("eager", "captured")
                )
                gap = float((one - two).abs().max())
                rows[f"{family} {task}"] = {"gap": gap, "good": gap <= 2e-4}
                print(family, task, f"{gap:.1e}", "good" if gap <= 2e-4 else "BAD", flush=True)
    return rows


def full() -> dict[str, Any]:
    """All of a task with the model's own settings."""
    rows: dict[str, Any] = {}
    for task in TASKS:
        data, dev = read(task)
        runs = []
        for seed in range(options.seeds):
            began = time.perf_counter()
            result = finetune(
                options.model, Splits(data, dev), device="cuda", dtype="bfloat16", seed=seed
            )
            history = result.kept.history
            runs.append(
                {
                    "seed": seed,
                    "score": result.kept.value,
                    "seconds": round(time.perf_counter() - began, 1),
                    "training_seconds": round(history.seconds, 1),
                    "examples_per_second": round(history.speed, 1),
                }
            )
            print(task, json.dumps(runs[-1]), flush=True)
        rows[task] = {"metric": result.metric, "mean": mean(r["score"] for r in runs), "runs": runs}
    return rows


def main() -> None:
    """Measure and store."""
    known = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
    known |= {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    jobs = {"check": check, "families": families, "speed": speed, "full": full}
    for name, job in jobs.items():
        if name in options.only:
            known[name] = known.get(name, {}) | job()
            options.out.write_text(json.dumps(known, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
