"""What checkpoints cost a run: seconds of steps while one is written, and of other steps.

python benchmarks/saving.py --out benchmarks/results/saving.json

Steps with and without a write alternate in one run. How long a save stops the run (waiting for the
last one, and copying), and how long its thread writes, is measured beside.
"""

from __future__ import annotations

import argparse
import json
import os
import pydoc_data.topics
import tempfile
import threading
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import torch

from bertsmith.corpus import prepare
from bertsmith.tokenizer import train
from bertsmith.train import pretrain
from bertsmith.train.loop import Trainer
from bertsmith.train.recipe import checked
from bertsmith.train.watch import Watch


class Alternating(Watch):
    """Records the seconds of steps, by whether a checkpoint was written during all of them."""

    seconds: ClassVar[dict[bool, list[float]]] = {True: [], False: []}
    before = False

    def step(self, row: Any, timing: Any) -> None:
        """A step is done."""
        writing = any(thread.name == "checkpoint" for thread in threading.enumerate())
        if "seconds" in timing and writing == Alternating.before and timing["step"] > 2:
            self.seconds[writing].append(timing["seconds"])
        Alternating.before = writing


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="bert-small")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--every", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    stopped: list[float] = []
    wrote: list[float] = []
    save = Trainer.save

    def saving(self: Trainer) -> None:
        save(self)
        Alternating.before = True
        stopped.append(self.took)
        wrote.append(self.writer.took)

    Trainer.save = saving  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        text = folder / "topics.txt"
        text.write_text("\n\n".join(pydoc_data.topics.topics.values()))
        train([text], "wordpiece", size=8000).save(folder / "tokenizer")
        prepare([text], folder / "tokenizer", folder / "corpus", workers=1, progress=False)
        sizes = {"batch_tokens": given.tokens, "micro_tokens": given.tokens}
        more = {key: vars(given)[key] for key in ("threads", "precision", "compile")}
        recipe = {
            "model": {"size": given.size},
            "data": {"corpus": str(folder / "corpus"), "length": 64},
            "train": {"steps": given.steps, **sizes, **more},
            "evaluate": {"tokens": 0, "pseudo": 0},
            "checkpoint": {"every": given.every},
        }
        pretrain(checked(recipe, "saving"), folder / "run", show=Alternating)
        last = max((folder / "run" / "checkpoints").iterdir())
        size = sum(path.stat().st_size for path in last.iterdir())
    alone, writing = Alternating.seconds[False], Alternating.seconds[True]
    result = {
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "load": os.getloadavg()[0],  # other work on the machine
        **{key: vars(given)[key] for key in ("size", "tokens", "threads", "precision", "compile")},
        "checkpoint_megabytes": size / 1e6,
        "step_seconds": median(alone),
        "step_seconds_while_writing": median(writing),
        "ratio": median(writing) / median(alone),
        "steps": [len(alone), len(writing)],
        "stopped_seconds": median(stopped[1:]),
        "written_in_seconds": median(wrote[2:]),
    }
    print(json.dumps(result, indent=1))
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n")


main()
