"""Fine-tune models on the tasks that `bertsmith-small` is judged by; medians over seeds.

    python benchmarks/small/scores.py --data DATA --models ours=bertsmith-small --out OUT
    python benchmarks/small/scores.py --data DATA --models ours=bertsmith-small --tasks cola stsb \
        --learning-rates 1e-4 2e-4 --pools cls mean --seeds 2 --limit 8000 --out OUT

DATA is a folder with GLUE's tasks (glue_sst2 or SST-2, ...), conll2003_en, ud_english_ewt and
squad_dev. Every run is what `bertsmith glue`, `conll` or `squad` does with one seed, in one of
--jobs processes. OUT is a JSON file of runs; those it has are not run again, so the same command
goes on where it was interrupted. The table on the way out has one row for each model and setting.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

# The longest first: with several jobs the short ones fill what time is left.
TASKS = ("sst2", "conll2003_en", "ud_english_ewt", "squad_dev", "cola", "stsb", "mrpc", "rte")
GLUE = ("sst2", "cola", "mrpc", "stsb", "rte")
KINDS = dict.fromkeys(GLUE, "classification") | {"stsb": "regression", "squad_dev": "answering"}
KINDS |= {"conll2003_en": "tagging", "ud_english_ewt": "tagging"}
Run = dict[str, Any]
HOW = ("model", "learning_rate", "layer_decay", "epochs", "batch_size", "pool", "limit", "dtype")
HOW += ("optimizer", "matrix_learning_rate", "settings")
OLD = {
    "optimizer": "adamw",
    "matrix_learning_rate": 0.0,
    "settings": "",
}  # of files from before there was a choice


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", nargs="+", required=True, help="name=model")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--learning-rates", nargs="+", type=float, default=[0.0], help="0: usual")
    parser.add_argument("--layer-decays", nargs="+", type=float, default=[0.0], help="0: usual")
    parser.add_argument("--optimizer", default="", help="adamw or muon; empty: usual")
    parser.add_argument("--matrix-rates", nargs="+", type=float, default=[0.0], help="0: usual")
    parser.add_argument("--epochs", nargs="+", type=int, default=[0], help="0: usual")
    parser.add_argument("--batch-size", type=int, default=0, help="0: usual")
    parser.add_argument(
        "--settings",
        nargs="+",
        default=[""],
        help="further settings, one table each: epochs=9,dropout=0.1,steps=900 (so many at least)",
    )
    parser.add_argument("--pools", nargs="+", default=[""], help="classifier_pooling of the config")
    parser.add_argument("--limit", type=int, default=0, help="first examples to train on; 0: all")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--limit-minutes", type=float, default=math.inf, help="start no run after")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def wanted(asked: argparse.Namespace) -> list[Run]:
    """All runs, in the order in which they begin: seed after seed, so that each is whole."""
    return [
        {
            "model": model.partition("=")[0],
            "task": task,
            "seed": seed,
            "learning_rate": rate,
            "layer_decay": decay,
            "epochs": epochs,
            "batch_size": asked.batch_size,
            "pool": pool,
            "limit": asked.limit,
            "dtype": asked.dtype,
            "optimizer": asked.optimizer,
            "matrix_learning_rate": matrix,
            "settings": settings,
        }
        for seed in range(asked.seeds)
        for task in asked.tasks
        for model in asked.models
        for rate in asked.learning_rates
        for decay in asked.layer_decays
        for matrix in asked.matrix_rates
        for epochs in asked.epochs
        for pool in asked.pools
        for settings in asked.settings
    ]


def key(run: Run) -> str:
    """What a run is told from others by."""
    return json.dumps([run[name] for name in ("task", "seed", *HOW)])


# ------------------------------------------------------------------ one process


def work(asked: argparse.Namespace, runs: Any, done: Any, end: float) -> None:
    """Make one run after another, until there is none left."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import torch

    if asked.jobs > 1:
        torch.set_num_threads(1)
    while (run := runs.get()) is not None:
        if time.time() > end:
            done.put(run | {"late": True})
            continue
        began = time.perf_counter()
        try:
            found = {"scores": one(asked, run)}
        except Exception:  # noqa: BLE001  (the others go on)
            found = {"failed": traceback.format_exc()[-2000:]}
        done.put(run | found | {"seconds": time.perf_counter() - began})


def one(asked: argparse.Namespace, run: Run) -> dict[str, float]:
    """The scores of a run."""
    from bertsmith.checkpoint import locate
    from bertsmith.finetuning import benchmarks, settings_for

    folders = dict(given.split("=", 1) for given in asked.models)
    model = pooled(locate(folders[run["model"]]), run["pool"])
    given: dict[str, Any] = {name: run[name] for name in ("seed", "dtype", "limit")}
    given["device"] = asked.device
    for name in ("optimizer", "learning_rate", "matrix_learning_rate", "layer_decay"):
        given[name] = run[name] or None
    given["batch_size"] = run["batch_size"] or settings_for(KINDS[run["task"]]).batch_size
    given["epochs"] = run["epochs"] or None  # by the number of examples
    given |= more_settings(asked, run, given)
    if run["task"] in GLUE:
        rows = list(benchmarks.run_glue(model, asked.data, [run["task"]], **given))
    elif run["task"] == "squad_dev":
        rows = list(benchmarks.run_squad(model, asked.data / "squad_dev", version="1.1", **given))
    else:
        rows = list(benchmarks.run_conll(model, asked.data / run["task"], **given))
    return {name: value.mean for name, value in rows[0].scores.items()}


def more_settings(asked: argparse.Namespace, run: Run, given: Run) -> Run:
    """The settings that --settings names; steps become epochs, and only pairs have two orders."""
    from bertsmith.finetuning import settings_for
    from bertsmith.tasks.glue import glue_folders, read_glue

    parts = (part.partition("=") for part in filter(None, run["settings"].split(",")))
    more: Run = {
        name: value if name == "optimizer" else json.loads(value) for name, _, value in parts
    }
    if run["task"] not in ("mrpc", "stsb"):
        more.pop("both_orders", None)
    steps = more.pop("steps", 0)
    if steps and run["task"] in GLUE:
        train = read_glue(glue_folders(asked.data)[run["task"]], run["task"], "train")
        examples = len(train.gold()) * (2 if more.get("both_orders") else 1)
        least = -(-steps // -(-examples // given["batch_size"]))
        usual = settings_for(KINDS[run["task"]]).epochs
        more["epochs"] = max(given["epochs"] or usual, least)
    return more


def pooled(model: Path, pool: str) -> Path:
    """The model, or a folder of links to it whose config pools otherwise."""
    if not pool:
        return model
    folder = model.parent / f"{model.name}-{pool}-{os.getpid()}"
    if not folder.exists():
        folder.mkdir()
        for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            (folder / name).symlink_to((model / name).resolve())
        config = json.loads((model / "config.json").read_text("utf-8"))
        config["classifier_pooling"] = pool
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


# ------------------------------------------------------------------ all of them


def main() -> int:
    """Run what is not there yet, and show the table; 1 where a run failed."""
    asked = options()
    stored: list[Run] = json.loads(asked.out.read_text("utf-8")) if asked.out.exists() else []
    stored = [OLD | run for run in stored]
    known = {key(run) for run in stored}
    todo = [run for run in wanted(asked) if key(run) not in known]
    spawn = multiprocessing.get_context("spawn")
    runs, done = spawn.Queue(), spawn.Queue()
    end = time.time() + 60 * asked.limit_minutes
    jobs = min(asked.jobs, len(todo))
    for run in [*todo, *[None] * jobs]:
        runs.put(run)
    processes = [spawn.Process(target=work, args=(asked, runs, done, end)) for _ in range(jobs)]
    for process in processes:
        process.start()
    failed = late = 0
    for count in range(1, len(todo) + 1):
        run = done.get()
        if "scores" in run:
            stored.append(run)
            asked.out.parent.mkdir(parents=True, exist_ok=True)
            asked.out.write_text("[\n" + ",\n".join(map(json.dumps, stored)) + "\n]\n", "utf-8")
            print(f"{count}/{len(todo)}", told(run), flush=True)
        else:
            late += "late" in run
            failed += "failed" in run
            print(run.get("failed", ""), end="", flush=True)
    for process in processes:
        process.join()
    print(f"{failed} failed, {late} were not begun in time")
    print(table(stored))
    return int(failed > 0)


def told(run: Run) -> str:
    """One line of progress."""
    rate = f" at {run['learning_rate']:g}" if run["learning_rate"] else ""
    rate += f" falling by {run['layer_decay']:g}" if run["layer_decay"] else ""
    if run["optimizer"] not in ("", "adamw"):
        rate += f", {run['optimizer']} {run['matrix_learning_rate'] or ''}".rstrip()
    rate += f", {run['epochs']} epochs" if run["epochs"] else ""
    rate += f" ({run['settings']})" if run["settings"] else ""
    scores = "  ".join(f"{name} {value:.4f}" for name, value in run["scores"].items())
    name = f"{run['model']} {run['task']} {run['pool']} seed {run['seed']}{rate}"
    return f"{name}: {scores} in {run['seconds']:.0f} s"


def number(task: str, runs: Sequence[Run]) -> float:
    """In percent: F1 of tags and answers, else the mean of the medians of a task's scores."""
    names = list(runs[0]["scores"])
    counted = ["f1"] if task not in GLUE and "f1" in names else names
    return 100 * mean(median(run["scores"][name] for run in runs) for name in counted)


def table(stored: Sequence[Run]) -> str:
    """Medians over seeds in percent; the mean is of the five tasks of GLUE."""
    groups: dict[tuple[Any, ...], dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in stored:
        groups[tuple(run[name] for name in HOW)][run["task"]].append(run)
    heads = [*HOW, *TASKS, "mean of five", "seeds"]
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for how, tasks in groups.items():
        cells = [f"{value:g}" if isinstance(value, float) else str(value) for value in how]
        cells += [f"{number(task, tasks[task]):.1f}" if task in tasks else "" for task in TASKS]
        whole = all(task in tasks for task in GLUE)
        cells.append(f"{mean(number(task, tasks[task]) for task in GLUE):.2f}" if whole else "")
        cells.append(" ".join(str(len(tasks[task])) for task in TASKS if task in tasks))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
