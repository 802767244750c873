"""Kill fine-tuning at random moments, resume it, and compare with one left alone, byte for byte.

    python tests/slow/kill_finetune.py --kills 60 --tasks classification tagging

Every run is a process forked from this one, in which everything is imported already, so that most
moments lie within steps, evaluations and writes. Kills are SIGKILL, and with --signals also SIGTERM
and SIGINT in turn. Every few kills the run may end; its weights and its report are compared. The
last line counts what was seen; the exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--kills", type=int, default=60, help="of each task")
parser.add_argument("--tasks", nargs="+", default=["classification", "tagging"])
parser.add_argument("--signals", action="store_true", help="also SIGTERM and SIGINT")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--each", type=int, default=12, help="kills of one run before it may end")
parser.add_argument("--out", type=Path, help="where to store what came of it")
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch  # noqa: E402
import torch._dynamo  # noqa: E402 - the first step of an optimizer would import it

from bertsmith.checkpoint import Sentence, save  # noqa: E402
from bertsmith.files import digest  # noqa: E402
from bertsmith.finetuning import finetune  # noqa: E402
from bertsmith.tokenizer import train  # noqa: E402
from bertsmith.train.building import built  # noqa: E402
from bertsmith.train.recipe import checked  # noqa: E402

torch.set_num_threads(1)
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZE |= {"intermediate_size": 64, "max_position_embeddings": 128}
CITIES, OTHERS = ("Prague", "Warsaw", "Paris"), ("bees", "storm", "violin")
SETTINGS: dict[str, Any] = {"learning_rate": 1e-3, "epochs": 12, "batch_size": 8, "head_epochs": 1}
SETTINGS |= {"optimizer": "muon", "ema": 0.9, "spike": 50.0, "keep": "best", "device": "cpu"}
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[: 3 if options.signals else 1]
PROMPT = 30.0  # seconds within which a process ends after a signal, on a busy machine


def sentence(number: int) -> tuple[list[str], bool]:
    """Words with the name of a city, or of something else."""
    city = number % 2 == 0
    word = (CITIES if city else OTHERS)[number // 2 % 3]
    return ["the", "old", "river", "flows", word, "number", str(number % 7)], city


def row(task: str, number: int) -> dict[str, Any]:
    """An example of a task."""
    words, city = sentence(number)
    if task == "tagging":
        tags = ["B-LOC" if word in CITIES else "O" for word in words]
        return {"tokens": words, "ner_tags": tags}
    return {"text": " ".join(words), "label": "city" if city else "thing"}


def model(folder: Path) -> Path:
    """A tiny model with dropout, and its tokenizer."""
    text = folder / "text.txt"
    text.write_text("\n".join(" ".join(sentence(number)[0]) for number in range(48)))
    tokenizer = train([text], "wordpiece", size=120)
    values = {"model": {"size": "bert-tiny", "settings": SIZE}, "train": {"steps": 1, "warmup": 0}}
    recipe = checked(values, "kill_finetune")
    torch.manual_seed(0)
    save(folder / "model", built(recipe, tokenizer).checkpoint, tokenizer, Sentence())
    return folder / "model"


def begin(model: Path, file: Path, out: Path) -> int:
    """Fork a process that fine-tunes, or goes on with what a killed one has left."""
    resume = (out.with_name(f"{out.name}.partial") / "plan.json").exists()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        with (out.parent / "errors.txt").open("a") as errors:
            os.dup2(errors.fileno(), 2)
            finetune(model, file, out, dev=file, test=file, resume=resume, **SETTINGS)
        status = 0
    except KeyboardInterrupt:
        status = 3
    except BaseException as error:  # noqa: BLE001 - a child must end here
        print(f"{error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def found(out: Path) -> dict[str, Any]:
    """The sum of the weights, and the report without the times that it took."""
    content = json.loads((out / "report.json").read_text())
    del content["examples_per_second"]
    for name in ("baseline", "vectors"):
        (content.get(name) or {}).pop("seconds", None)
    return {"weights": digest(out / "model.safetensors"), "report": content}


def moment(out: Path) -> str:
    """Where a run is, by its files."""
    work = out.with_name(f"{out.name}.partial")
    if out.exists() and not json.loads((out / "report.json").read_text())["interrupted"]:
        return "the result is written"
    if list(out.parent.glob(".out*.part")) or list(work.glob("state-*/.*")):
        return "while writing"
    steps = sorted(path.name for path in work.glob("state-*/step-*"))
    return f"after {steps[-1]}" if steps else "before the first epoch has ended"


def torment(task: str, model: Path, folder: Path) -> dict[str, Any]:
    """Kill runs of a task, and compare what they come to with a run in peace."""
    folder.mkdir()
    file, out = folder / "train.jsonl", folder / "out"
    file.write_text("".join(json.dumps(row(task, number)) + "\n" for number in range(48)))
    # Once in this process, so that everything is imported.
    finetune(model, file, folder / "first", dev=file, test=file, **{**SETTINGS, "epochs": 1})
    began = time.monotonic()
    assert wait(begin(model, file, folder / "peace")) == 0, (folder / "errors.txt").read_text()
    whole, expected = time.monotonic() - began, found(folder / "peace")
    draw, seen = random.Random(options.seed), Counter[str]()
    killed = runs = different = late = 0
    while killed < options.kills:
        child = begin(model, file, out)
        time.sleep(draw.uniform(0, 0.4 * whole))
        where, how = moment(out), SIGNALS[killed % len(SIGNALS)]
        gone = os.waitpid(child, os.WNOHANG)[0]
        if not gone:
            os.kill(child, how)
            began = time.monotonic()
            wait(child)
            late += time.monotonic() - began > PROMPT
            killed += 1
            seen[where.partition(" step-")[0]] += 1
            print(f"{task}: kill {killed} ({how.name}), {where}", flush=True)
        if not gone and killed % options.each and killed < options.kills:
            continue
        if moment(out) != "the result is written":
            status = wait(begin(model, file, out))
            assert status == 0, (folder / "errors.txt").read_text()
        runs += 1
        if found(out) != expected:
            different += 1
            print(f"{task}: run {runs} differs", flush=True)
        shutil.rmtree(out)
        shutil.rmtree(out.with_name("out.partial"), ignore_errors=True)
    print(f"{task}: {killed} kills, {dict(seen)}: {runs - different} of {runs} runs equal")
    return {"kills": killed, "where": dict(seen), "runs": runs, "different": different + late}


def main() -> int:
    """Kill the runs of all tasks; 1 if one of them came to something else."""
    with tempfile.TemporaryDirectory() as scratch:
        start = model(Path(scratch))
        results = {task: torment(task, start, Path(scratch) / task) for task in options.tasks}
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    return int(any(one["different"] for one in results.values()))


sys.exit(main())
