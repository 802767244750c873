"""Kill a comparison at random moments, continue it, and compare with one left alone.

    python tests/slow/kill_compare.py --kills 10 --out benchmarks/results/compare_kills.json

Every run is a process forked from this one, in which everything is imported already. Kills are
SIGKILL, SIGTERM and SIGINT in turn. At the end results.json must be the same, byte for byte.
"""

from __future__ import annotations

import argparse
import json
import os
import pydoc_data.topics
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--kills", type=int, default=10)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", type=Path, help="where to store what came of it")
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch  # noqa: E402
import torch._dynamo  # noqa: E402 - the first step of an optimizer would import it

from bertsmith.compare import compare  # noqa: E402
from bertsmith.compare.spec import checked_spec  # noqa: E402
from bertsmith.corpus import prepare  # noqa: E402
from bertsmith.files import digest  # noqa: E402
from bertsmith.tokenizer import train  # noqa: E402

torch.set_num_threads(1)
SETTINGS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def material(folder: Path) -> dict[str, Any]:
    text = folder / "topics.txt"
    topics = list(pydoc_data.topics.topics.values())[:40]
    text.write_text("\n\n".join("\n".join(filter(str.strip, t.splitlines())) for t in topics))
    train([text], "wordpiece", size=600).save(folder / "tokenizer")
    corpus = folder / "corpus"
    prepare([text], folder / "tokenizer", corpus, held_out=0.1, workers=1, progress=False)
    words = ["list", "class", "file", "name", "value", "module", "object", "string", "number"]
    kinds = (("empty", "bad"), ("right", "good"))
    rows = [f"the {a} {b} is {kind},{label}" for a in words for b in words for kind, label in kinds]
    (folder / "task.csv").write_text("\n".join(["text,label", *rows]))
    return {
        "corpus": str(corpus),
        "seeds": 2,
        "draws": 50,
        "budget": {"tokens": 10_000},
        "settings": {
            "model": {"settings": {**SETTINGS, "intermediate_size": 64}},
            "data": {"length": 32},
            "train": {"batch_tokens": 512, "micro_tokens": 512},
            "evaluate": {"tokens": 1024, "pseudo": 2},
        },
        "variants": {
            "bert": {"recipe": "tiny-bert"},
            "masked": {"recipe": "tiny-bert-no-nsp"},
            "static": {"static": "masked"},
        },
        "tasks": {"words": {"data": str(folder / "task.csv")}},
        "finetune": {"seeds": 1, "at": [0.5], "settings": {"epochs": 2}},
    }


def begin(values: dict[str, Any], out: Path) -> int:
    """Fork a process that runs, or continues, the comparison."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        compare(checked_spec(values, "kill"), out, jobs=1)
        status = 0
    except KeyboardInterrupt:
        status = 3
    except BaseException as error:  # noqa: BLE001 - a child must end here
        print(repr(error), file=sys.stderr, flush=True)
    os._exit(status)


def ended(child: int, seconds: float) -> int | None:
    """The status of a child that ends within so many seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return None


def main() -> None:
    draw, kills, rounds = random.Random(options.seed), 0, 0
    signals = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        values = material(folder)
        start = time.monotonic()
        assert ended(begin(values, folder / "alone"), 3600) == 0
        length = time.monotonic() - start
        expected = digest(folder / "alone" / "results.json")
        equal = True
        while kills < options.kills:
            out, rounds = folder / f"killed-{rounds}", rounds + 1
            while True:
                child = begin(values, out)
                wait = draw.uniform(0.05, length / 3) if kills < options.kills else 3600
                status = ended(child, wait)
                if status is not None:
                    assert status == 0, f"ended with {status}"
                    break
                os.kill(child, signals[kills % 3])
                os.waitpid(child, 0)
                kills += 1
            equal &= digest(out / "results.json") == expected
            print(f"{kills} kills, {rounds} comparisons, equal: {equal}", flush=True)
    content = {
        "what": "comparisons killed at random moments and continued; results.json is the same",
        "kills": kills,
        "comparisons": rounds,
        "equal": equal,
        "seconds": round(time.monotonic() - began),
    }
    print(json.dumps(content))
    if options.out:
        options.out.write_text(json.dumps(content, indent=2) + "\n")
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
