"""Fine-tuning in several processes beside one: weights, scores and seconds.

    python benchmarks/ranks.py --data DATA --model bertsmith-small
    python benchmarks/ranks.py --data DATA --tasks conll2003 --ways 1 2 2:fsdp

DATA is a folder with glue_sst2 and conll2003_en. Each way (a number of processes, and ddp or fsdp)
runs `bertsmith finetune` on the first rows of a task with the model's own settings, without
dropout: with it each process draws its own masks. Reports the largest difference of a weight from
that of one process, and whether the scores on dev are equal. Processes share the CPU, so their
seconds say nothing about speed on several devices.
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
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from bertsmith.tasks.glue import read_glue
from bertsmith.tasks.read import read_data

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--model", default="bertsmith-small")
parser.add_argument("--tasks", nargs="+", default=["sst2", "conll2003"])
parser.add_argument("--ways", nargs="+", default=["1", "2", "4", "2:fsdp", "4:fsdp"])
parser.add_argument("--rows", type=int, default=2000)
parser.add_argument("--scored", type=int, default=400, help="rows of the dev file")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--more", nargs="*", default=[], help="options of finetune, without dashes")
parser.add_argument("--out", type=Path, default=Path("benchmarks/results/ranks.json"))
options = parser.parse_args()


def written(task: str, folder: Path) -> tuple[Path, Path]:
    """The first rows of a task's files as JSON lines."""
    if task == "sst2":
        source = options.data / "glue_sst2"
        sets = [read_glue(source, "sst2", split) for split in ("train", "dev")]
        rows = [[{"text": one.text, "label": one.label} for one in some.examples] for some in sets]
    else:
        files = {
            path.name.split(".")[0]: path for path in (options.data / "conll2003_en").iterdir()
        }
        sets = [read_data(files[split], "tagging") for split in ("train", "valid")]
        rows = [
            [{"tokens": list(one.words), "tags": list(one.tags)} for one in some.examples]
            for some in sets
        ]
    paths = folder / f"{task}-train.jsonl", folder / f"{task}-dev.jsonl"
    for path, some, count in zip(paths, rows, (options.rows, options.scored), strict=True):
        path.write_text("".join(json.dumps(row) + "\n" for row in some[:count]), "utf-8")
    return paths


def trained(way: str, train: Path, dev: Path, out: Path) -> dict[str, Any]:
    """Fine-tune in so many processes; returns scores and seconds."""
    count, _, parallel = way.partition(":")
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    command = [sys.executable, *(launch if count != "1" else []), "-m", "bertsmith", "finetune"]
    command += [options.model, str(train), "--dev", str(dev), "--out", str(out), "--dropout", "0"]
    command += ["--epochs", str(options.epochs), "--device", "cpu"]
    command += ["--parallel", parallel] if parallel else []
    command += [f"--{word}" if n % 2 == 0 else word for n, word in enumerate(options.more)]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    report = json.loads((out / "report.json").read_text("utf-8"))
    return {"scores": report["scores"]["dev"], "seconds": round(time.perf_counter() - began, 1)}


def gap(one: Path, other: Path) -> tuple[float, str]:
    """The largest difference of a weight, and whose it is."""
    first, second = (load_file(folder / "model.safetensors") for folder in (one, other))
    return max((float((first[n].float() - second[n].float()).abs().max()), n) for n in first)


def main() -> None:
    """Train each way, compare, and store."""
    content: dict[str, Any] = {"cpu": platform.processor() or platform.machine(), "ways": {}}
    if options.out.exists():
        content = json.loads(options.out.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for task in options.tasks:
            train, dev = written(task, folder)
            known: dict[str, float] = {}
            for way in options.ways:
                out = folder / f"{task}-{way.replace(':', '-')}"
                row = trained(way, train, dev, out)
                scores = {key: one for key, one in row["scores"].items() if "error" not in key}
                known = known or scores
                largest, where = gap(folder / f"{task}-{options.ways[0]}", out)
                equal = all(abs(known[key] - scores[key]) < 1e-9 for key in scores)
                row |= {"gap": largest, "of": where, "equal_scores": equal}
                row |= {"model": options.model, "rows": options.rows, "epochs": options.epochs}
                content["ways"][f"{task} {way}"] = row
                print(
                    f"{task} {way}: gap {largest:.1e} ({where}), scores equal: {equal}", flush=True
                )
                options.out.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
