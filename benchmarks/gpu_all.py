"""All measurements of docs/speed.md on one GPU, one after the other, and their table.

    python benchmarks/gpu_all.py --data DATA --corpus PREPARED
    python benchmarks/gpu_all.py --table

DATA is a folder with glue_sst2 and conll2003_en, PREPARED what `bertsmith prepare` made with the
tokenizer of bertsmith-small. Each script runs in a process of its own and stores its JSON file in
--results; all may take half an hour of an H200 (estimated). `--table` prints the table of the files
that are there. Speeds are in thousand tokens (fine-tuning: examples) per second; of several kinds
of steps in a file the fastest counts, on both sides. ✗ marks goals that are missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
SCRIPTS = ["gpu_check", "pretrain_steps", "gpu_loop", "gpu_finetune", "gpu_forward"]
FILES = {"pretrain_steps": "gpu_pretrain"}
STEPS = [  # case, name, and the least speed and ratio
    ("12x768:0:1", "BERT-base steps, full rows of 128", 1050, 2),
    ("12x768:0:0.7", "rows 50 to 90% full", 0, 2.4),
    ("12x768:0.1:1", "dropout 0.1", 0, 1.7),
    ("12x768:0:1:512", "rows of 512", 0, 2),
    ("12x256:0:1", "12 x 256 steps, full rows", 4800, 0),
    ("12x256:0:0.7", "12 x 256, rows 50 to 90% full", 3500, 0),
    ("deberta-12x768:0:1", "DeBERTa-v3-base steps, full rows of 128", 0, 2),
    ("deberta-12x768:0:0.7", "the same, rows 50 to 90% full", 0, 2),
]


class Row(NamedTuple):
    """One line of the table; a goal of 0 is none."""

    work: str
    ours: float
    theirs: float = 0.0
    least: float = 0.0
    ratio: float = 0.0

    def __str__(self) -> str:
        times = self.ours / self.theirs if self.theirs else 0.0
        missed = self.ours < self.least or times < self.ratio
        goals = [f"{self.least:,.0f}" if self.least else "", f"{self.ratio:g} x" * bool(self.ratio)]
        goal = ", ".join(filter(None, goals)) + " ✗" * missed
        numbers = [f"{self.ours:,.0f}", f"{self.theirs:,.0f}" if self.theirs else ""]
        cells = [self.work, *numbers, f"{times:.2f} x" if times else "", goal]
        return "| " + " | ".join(cells) + " |"


def finetuning(found: Any) -> Iterator[Row]:
    """Examples per second, beside a Trainer."""
    for key, work, ratio in (
        ("sst2 bertsmith-small", "fine-tune bertsmith-small on SST-2, examples/s", 5),
        ("conll2003 bertsmith-small", "the same on CoNLL-2003", 5),
        ("sst2 bert-base", "fine-tune a BERT-base on SST-2", 2.5),
        ("conll2003 bert-base", "the same on CoNLL-2003", 2.5),
    ):
        speeds = found["speed"][key]
        yield Row(work, speeds["captured, three epochs"], speeds["trainer"], 0, ratio)


def loops(found: Any) -> Iterator[Row]:
    """The complete loop, and what is compared with it."""
    speed = {name: row["tokens_per_second"] / 1e3 for name, row in found["loop"].items()}
    loop = speed["replayed"]
    yield Row("pre-train by the recipe bertsmith-small: the complete loop", loop, 0, 3500)
    ready = loop / speed["ready"]
    yield Row(f"eight ready batches instead: the loop has {ready:.0%} (goal 95%)", speed["ready"])
    promised = speed["plan"] / loop - 1
    yield Row(f"`plan`: {promised:+.0%} (goal: within 10%)", speed["plan"])


def steps(found: Any) -> Iterator[Row]:
    """Pre-training steps, the fastest kind of each side."""
    for case, work, least, ratio in STEPS:
        size, dropout, fill, *length = case.split(":")
        key = (size, float(dropout), float(fill), int(length[0]) if length else 128)
        rows = [
            row
            for row in found["results"]
            if (row["size"], row["dropout"], row["fill"], row["length"]) == key
        ]
        best = {
            side: max(
                (r["tokens_per_second"] / 1e3 for r in rows if r["contender"].startswith(side)),
                default=0.0,
            )
            for side in ("bertsmith", "transformers")
        }
        if rows:
            yield Row(work, best["bertsmith"], best["transformers"], least, ratio)


def forward(found: Any) -> Iterator[Row]:
    """DeBERTa's forward of a ragged batch."""
    for row in found["models"]:
        if row["model"] == "deberta-v3-base":
            speed = {name: value / 1e3 for name, value in row["tokens_per_second"].items()}
            ours, theirs = speed["bertsmith"], speed["transformers, sorted batches of 32"]
            yield Row("DeBERTa-v3-base forward, ragged, not compiled", ours, theirs, 0, 3)


TABLES = {"gpu_finetune": finetuning, "gpu_loop": loops, "pretrain_steps": steps}
TABLES |= {"gpu_forward": forward}


def table(results: Path) -> str:
    """The table of the files that are there."""
    lines = ["| work | bertsmith | `transformers` | ratio | goal |", "| --- " * 5 + "|"]
    for script, rows in TABLES.items():
        path = results / f"{FILES.get(script, script)}.json"
        if path.is_file():
            lines += map(str, rows(json.loads(path.read_text("utf-8"))))
    return "\n".join(lines)


def main() -> int:
    """Run the scripts, then print the table; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with glue_sst2 and conll2003_en")
    parser.add_argument("--corpus", type=Path, help="a prepared corpus")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=SCRIPTS)
    parser.add_argument("--seeds", type=int, default=5, help="of fine-tuning with all examples")
    parser.add_argument("--table", action="store_true", help="print the table, measure nothing")
    options = parser.parse_args()
    if not options.table and not (options.data and options.corpus):
        parser.error("--data and --corpus are needed to measure")
    given = {
        "pretrain_steps": ["--kinds", "replayed", "fp8", "--against", "compiled"],
        "gpu_loop": ["--corpus", options.corpus, "--minutes", "0", "--set", "train.steps=600"],
        "gpu_finetune": ["--data", options.data, "--seeds", options.seeds],
        "gpu_forward": ["--compile"],
    }
    given["pretrain_steps"] += ["--cases", *(case for case, *_ in STEPS)]
    options.results.mkdir(parents=True, exist_ok=True)
    failed = []
    for script in [] if options.table else options.only:
        out = options.results / f"{FILES.get(script, script)}.json"
        command = [sys.executable, HERE / f"{script}.py", *given.get(script, []), "--out", out]
        out.unlink(missing_ok=True)  # nothing old is in the table
        if subprocess.run(list(map(str, command)), check=False).returncode:
            failed.append(script)
    print(table(options.results))
    for script in failed:
        print(f"{script} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
