"""`bertsmith prepare` against `datasets.map` with the grouping of run_mlm, on the same files.

    python benchmarks/prepare.py TEXT_FILES... --tokenizer DIRECTORY

Both read the same (compressed) text with the same vocabulary and two processes. `datasets` loads
the files, tokenizes lines in batches and concatenates them into blocks of 512, as the script
run_mlm.py of `transformers` does; bertsmith also splits sentences, keeps document boundaries,
holds documents out and writes SHA-256 sums. Each contender runs in a process of its own, one after
the other; wall-clock time, processor time (of all processes) and the peak of the summed resident
memory of all its processes are measured from outside. bertsmith runs a second time on every file
twice: its memory must not grow.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("files", nargs="+", type=Path)
parser.add_argument("--tokenizer", type=Path, required=True)
parser.add_argument("--processes", type=int, default=2)
parser.add_argument("--only", nargs="*", default=[], help="beginnings of names")
parser.add_argument("--folder", type=Path, help="where to write; a temporary one by default")
parser.add_argument("--out", type=Path, default=Path("benchmarks/results/prepare.json"))
parser.add_argument("--contender", default="", help=argparse.SUPPRESS)
QUIET = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}


def with_bertsmith(options: Any, times: int) -> dict[str, int]:
    from bertsmith.corpus import prepare

    made = prepare(
        options.files * times, options.tokenizer, options.folder / "out", workers=options.processes
    )
    return {"tokens": sum(split.tokens for split in made.splits.values())}


def with_datasets(options: Any) -> dict[str, Any]:
    from itertools import chain

    from datasets import load_dataset
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    files = [str(file) for file in options.files]
    start = time.perf_counter()
    raw = load_dataset("text", data_files=files, cache_dir=str(options.folder), split="train")
    loaded = time.perf_counter() - start

    def tokenize(examples: Any) -> Any:
        return tokenizer(examples["text"], return_special_tokens_mask=True)

    def group(examples: Any) -> Any:
        joined = {key: list(chain(*examples[key])) for key in examples}
        total = len(joined["input_ids"]) // 512 * 512
        return {
            key: [values[at : at + 512] for at in range(0, total, 512)]
            for key, values in joined.items()
        }

    tokens = raw.map(tokenize, batched=True, num_proc=options.processes, remove_columns=["text"])
    blocks = tokens.map(group, batched=True, num_proc=options.processes)
    return {"tokens": len(blocks) * 512, "seconds_before_map": loaded}


def work(options: Any) -> None:
    """One contender's turn."""
    start = time.perf_counter()
    if options.contender.startswith("bertsmith"):
        found = with_bertsmith(options, 2 if "twice" in options.contender else 1)
    else:
        found = with_datasets(options)
    found["seconds"] = time.perf_counter() - start
    (options.folder / "found.json").write_text(json.dumps(found))


def resident(root: int) -> int:
    """The resident bytes of a process and all below it, pages that they share counted each time."""
    total, waiting = 0, [root]
    while waiting:
        process = Path("/proc", str(waiting.pop()))
        try:
            total += int((process / "statm").read_text().split()[1]) * resource.getpagesize()
            for thread in (process / "task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
        except (OSError, ValueError):  # it has just ended
            continue
    return total


def measure(options: Any, contender: str) -> dict[str, Any]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        command = [sys.executable, *sys.argv, "--contender", contender, "--folder", folder]
        process = subprocess.Popen(command, env=QUIET)
        peak = 0
        while process.poll() is None:
            peak = max(peak, resident(process.pid))
            time.sleep(0.1)
        if process.returncode:
            sys.exit(f"{contender} failed")
        found = json.loads((Path(folder) / "found.json").read_text())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**found, "processor_seconds": spent, "peak_resident_bytes": peak}


def main() -> None:
    options = parser.parse_args()
    if options.contender:
        work(options)
        return
    rows: dict[str, Any] = {}
    load = os.getloadavg()[0]
    for name in ("bertsmith", "datasets", "bertsmith, every file twice"):
        if options.only and not any(map(name.startswith, options.only)):
            continue
        rows[name] = measure(options, name)
        row = rows[name]
        print(
            f"{name:28} {row['seconds']:7.1f} s, processors {row['processor_seconds']:7.1f} s,"
            f" {row['peak_resident_bytes'] / 1e6:6.0f} MB, {row['tokens']:,} tokens",
            flush=True,
        )
    result: dict[str, Any] = {
        "files": [{"name": file.name, "bytes": file.stat().st_size} for file in options.files],
        "processes": options.processes,
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load_before": load,
        "versions": {
            n: version(n) for n in ("bertsmith", "datasets", "tokenizers", "transformers")
        },
        "contenders": rows,
    }
    if {"bertsmith", "datasets"} <= rows.keys():
        ours, theirs = rows["bertsmith"], rows["datasets"]
        maps = theirs["seconds"] - theirs["seconds_before_map"]
        result["ratios"] = {
            "wall clock": theirs["seconds"] / ours["seconds"],
            "wall clock, without the loading of datasets": maps / ours["seconds"],
            "processor time": theirs["processor_seconds"] / ours["processor_seconds"],
        }
        print(result["ratios"])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
