"""Kill runs at random moments, resume them, and compare with one left alone, byte for byte.

    python tests/slow/kill_runs.py --kills 200 --out benchmarks/results/kills.json
    python tests/slow/kill_runs.py --kills 60 --ranks 2 --out benchmarks/results/kills.json

Every run is a process forked from this one, in which everything is imported already, so that a
run begins at once and most moments lie within steps, evaluations and checkpoint writes. Every
few kills the run may end, its files are compared, and a new one begins. Checkpoints are
written every other step, and every second kill waits for one that is being written. Kills are
SIGKILL, SIGTERM and SIGINT in turn; after the last two the processes must end by themselves within
seconds. With `--precision float16` losses have a scale, which overflows and grows in each run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--kills", type=int, default=200)
parser.add_argument("--ranks", type=int, nargs="+", default=[1], help="in one run after another")
parser.add_argument("--parallel", choices=("ddp", "fsdp"), default="ddp")
parser.add_argument("--precision", choices=("float32", "float16"), default="float32")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--each", type=int, default=8, help="kills of one run before it may end")
parser.add_argument("--out", type=Path, help="JSON file to which the counts are added")
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pydoc_data.topics  # noqa: E402

import torch  # noqa: E402
import torch._dynamo  # noqa: E402 - the first step of an optimizer would import it

from bertsmith.corpus import prepare  # noqa: E402
from bertsmith.files import digest  # noqa: E402
from bertsmith.tokenizer import train  # noqa: E402
from bertsmith.train import guard, precision, pretrain  # noqa: E402
from bertsmith.train.recipe import checked  # noqa: E402
from bertsmith.train.state import Checkpoints  # noqa: E402

torch.set_num_threads(1)
precision.has_float16_units = lambda: True  # it computes in it without them, but slowly
guard.GROWTH = 3
guard.LossScale.__init__.__defaults__ = (2.0**24, 0)
SETTINGS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def corpus(folder: Path) -> Path:
    text = folder / "topics.txt"
    topics = list(pydoc_data.topics.topics.values())[:40]
    text.write_text("\n\n".join("\n".join(filter(str.strip, t.splitlines())) for t in topics))
    train([text], "wordpiece", size=600).save(folder / "tokenizer")
    prepare([text], folder / "tokenizer", folder / "corpus", workers=1, progress=False)
    return folder / "corpus"


def begin(recipe: Any, run: Path, ranks: int) -> list[int]:
    """Fork a process for each rank; returns their ids."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    resume = (run / "recipe.toml").exists()
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            status = 1
            try:
                status = 0 if pretrain(recipe, run, resume=resume, show="none")["finished"] else 3
            except BaseException as error:  # noqa: BLE001 - a child must end here
                print(f"rank {rank}: {error!r}", file=sys.stderr, flush=True)
            finally:
                os._exit(status)
        children.append(child)
    return children


USUAL = ("ddp", "float32")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
PROMPT = 30.0  # seconds within which processes end after a signal, on a busy machine


def end(
    children: list[int], how: signal.Signals | None = None, patience: float = PROMPT
) -> list[int]:
    """Send a signal to processes, or none, and wait for them; returns how each ended."""
    for child in children if how else ():
        os.kill(child, how or 0)
    began = time.monotonic()
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert how is None or time.monotonic() - began < patience, "it did not stop"
    return ended


def sums(run: Path) -> dict[str, str]:
    checkpoints = Checkpoints(run / "checkpoints")
    last = checkpoints.path(checkpoints.steps()[-1])
    files = [run / "log.jsonl", run / "model" / "model.safetensors", *last.glob("*.safetensors")]
    return {str(path.relative_to(run)): digest(path) for path in sorted(files)}


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        recipe = checked(
            {
                "model": {"size": "bert-tiny", "settings": {**SETTINGS, "intermediate_size": 64}},
                "data": {"corpus": str(corpus(folder)), "length": 32, "format": "next"},
                "objectives": {"masked_lm": 1, "next_sentence": 1},
                "train": {
                    "steps": 40,
                    "batch_tokens": 512,
                    "micro_tokens": 256,
                    "ema": 0.9,
                    "parallel": options.parallel,
                    "precision": options.precision,
                },
                "evaluate": {"tokens": 512, "pseudo": 1, "every": 7},
                "checkpoint": {"every": 2},
            },
            "kill_runs",
        )
        for ranks in options.ranks:
            torment(recipe, folder / str(ranks), ranks)


def torment(recipe: Any, folder: Path, ranks: int) -> None:
    """Kill runs of so many processes, and compare what they come to with a run in peace."""
    folder.mkdir()
    began = time.monotonic()
    assert end(begin(recipe, folder / "peace", ranks)) == [0] * ranks
    whole = time.monotonic() - began
    expected = sums(folder / "peace")
    draw = random.Random(options.seed)
    seen: Counter[str] = Counter()
    killed, runs = 0, 0
    run = folder / "killed"
    while killed < options.kills:
        children = begin(recipe, run, ranks)
        time.sleep(draw.uniform(0, 0.6 * whole))
        until = time.monotonic() + (whole if killed % 2 else 0)
        while True:
            ended = [os.waitpid(child, os.WNOHANG)[0] for child in children]
            left = [child for child, gone in zip(children, ended, strict=True) if not gone]
            writing = list((run / "checkpoints").glob(".writing-*"))
            if writing or len(left) < ranks or time.monotonic() > until:
                break
            time.sleep(0.001)
        how = SIGNALS[killed % len(SIGNALS)]
        end(left, how, max(PROMPT, whole))  # on a machine where all is slow
        if left:
            killed += 1
            seen[how.name] += 1
            kind = "in a checkpoint write" if writing else "elsewhere"
            seen["before the first step" if not (run / "log.jsonl").exists() else kind] += 1
            seen["with a checkpoint partly written"] += any(
                (run / "checkpoints").glob(".writing-*")
            )
        if killed % options.each == 0 or not left or killed == options.kills:
            assert end(begin(recipe, run, ranks)) == [0] * ranks, "no end"
            found = sums(run)
            assert found == expected, (found, expected)
            shutil.rmtree(run)
            runs += 1
    kinds = [kind for kind in (options.parallel, options.precision) if kind not in USUAL]
    name = ", ".join([f"{ranks} processes", *kinds])
    print(f"{killed} kills of {name}, {dict(seen)}: {runs} runs equal", flush=True)
    if options.out:
        stored = json.loads(options.out.read_text()) if options.out.exists() else {}
        before = stored.get(name, {"kills": 0, "where": {}, "runs_equal": 0})
        where = dict(Counter(before["where"]) + seen)
        kills, equal = before["kills"] + killed, before["runs_equal"] + runs
        stored[name] = {"kills": kills, "where": where, "runs_equal": equal}
        options.out.write_text(json.dumps(stored, indent=1) + "\n")


main()
