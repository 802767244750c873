"""Let every verb that writes run on a disk that is full after so many bytes, and look what is left.

    python tests/slow/full_disks.py --out benchmarks/results/attack.json

A limit on the size of files stands for the full disk: every write beyond it fails. Besides, outputs
are named that cannot be written: a name of 300 characters, a folder that is a file, /dev/full.
After each run there must be one line on standard error, exit status 2 (or 0 where the limit was
not reached), what was there before unchanged, and no temporary file.

Every run is a process forked from this one, in which everything is imported already.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import torch._dynamo

from bertsmith.cli import main

torch.set_num_threads(1)
LIMITS = [0, 100, 3_000, 30_000, 300_000, 3_000_000]
SECONDS = 120
WORDS = [
    "the",
    "old",
    "river",
    "flows",
    "past",
    "the",
    "town",
    "where",
    "bees",
    "and",
    "storms",
    "come",
    "with",
    "a",
    "violin",
]

# A verb's words; OUT is what it writes. A name with a suffix is a file, one without is a folder.
VERBS: dict[str, tuple[str, str]] = {
    "tokenizer train": ("vocabulary", "tokenizer train text.txt --size 90 --out OUT"),
    "tokenizer extend": (
        "longer",
        "tokenizer extend model text.txt --add 4 --min-frequency 1 --out OUT",
    ),
    "prepare": ("corpus", "prepare text.txt --tokenizer model --out OUT --workers 1"),
    "pretrain": (
        "run",
        "pretrain tiny-bert --data shards --out OUT --view none --set train.steps=2 "
        "--set data.length=16 --set train.batch_tokens=256 --set train.micro_tokens=256",
    ),
    "convert": ("converted", "convert model OUT"),
    "finetune": ("tuned", "finetune model labels.csv --out OUT --epochs 1"),
    "predict jsonl": ("said.jsonl", "predict classifier labels.csv --out OUT"),
    "predict csv": ("said.csv", "predict classifier labels.csv --out OUT"),
    "predict parquet": ("said.parquet", "predict classifier labels.csv --out OUT"),
    "evaluate": ("page.html", "evaluate classifier labels.csv --report OUT"),
    "embed npy": ("vectors.npy", "embed model --file text.txt --out OUT"),
    "embed jsonl": ("vectors.jsonl", "embed model --file text.txt --out OUT"),
    "attention": ("page.html", "attention model river --out OUT"),
    "attention npz": ("arrays.npz", "attention model river --out OUT"),
    "heads": ("page.html", "heads model text.txt --limit 4 --out OUT"),
    "lens": ("page.html", "lens model [MASK] --out OUT"),
    "cka": ("page.html", "cka model text.txt --limit 8 --out OUT"),
    "importance": ("page.html", "importance classifier river --out OUT"),
    "senses": ("page.html", "senses model river text.txt --out OUT"),
    "ablate": ("pruned", "ablate model text.txt --limit 4 --prune 1 --out OUT"),
    "runs": ("page.html", "runs finished --html OUT"),
    "glue": ("seeds.jsonl", "glue model glue --task rte --epochs 1 --out OUT"),
}


def run(words: list[str], home: Path, limit: int | None) -> tuple[int, str]:
    """Run a verb in a forked process; its exit status (below 0: a signal) and standard error."""
    errors = home.parent / "errors.txt"
    pid = os.fork()
    if not pid:
        os.chdir(home)
        with Path(os.devnull).open("r+b", 0) as nothing, errors.open("wb") as said:
            os.dup2(nothing.fileno(), 0)
            os.dup2(nothing.fileno(), 1)
            os.dup2(said.fileno(), 2)
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w")
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        signal.alarm(SECONDS)
        sys.argv = ["bertsmith", *words]
        status = 1
        try:
            main()
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
        except BaseException:  # noqa: BLE001 - whatever it is, it is a fault of ours
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, state = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(state), errors.read_text("utf-8", "replace")


def content(folder: Path) -> dict[str, bytes]:
    """Every file with what is in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def fault(status: int, said: str) -> str:
    """What is wrong about how a run ended; empty where nothing is."""
    lines = [line for line in said.splitlines() if not line.startswith("note: ")]
    if "Traceback" in said:
        return "traceback"
    if status not in (0, 2):
        return f"status {status}"
    if status == 2 and not (lines and lines[-1].startswith("bertsmith: ")):
        return "no line that says why"
    return ""


def judge(
    words: str, out: str, home: Path, limit: int | None, before: Callable[[Path], None]
) -> str:
    """One run, and what is wrong with it."""
    place = home / out if not out.startswith("/") else Path(out)
    stem = Path(out).name
    shutil.rmtree(home / "results", ignore_errors=True)
    (home / "results").mkdir()
    if not out.startswith("/"):
        place = home / "results" / stem
    before(place)
    former = content(home)
    status, said = run(words.replace("OUT", str(place)).split(), home, limit)
    wrong = fault(status, said)
    now = content(home)
    if not wrong and status == 2 and limit is not None:
        resumed = words.startswith(("pretrain", "prepare", "glue"))  # what they have done stays
        gone = {name for name in former if former[name] != now.get(name)}
        added = {name for name in now if name not in former} if not resumed else set()
        wrong = f"changed {min(gone)}" if gone else f"left {min(added)}" if added else ""
    if not wrong and any(name.endswith(".part") for name in now):
        wrong = "left a temporary file"
    return f"{wrong}: {said.strip()[-300:]}" if wrong else ""


def prepare_home(home: Path) -> None:
    """The inputs that all verbs read."""
    lines = [" ".join(WORDS[(n + k * 5) % len(WORDS)] for k in range(9)) + "." for n in range(60)]
    (home / "text.txt").write_text("\n".join(lines) + "\n")
    (home / "documents.txt").write_text("\n\n".join(f"{a}\n{b}" for a, b in pairwise(lines)))
    labels = [f'"{line}",{"water" if "river" in line else "other"}' for line in lines]
    (home / "labels.csv").write_text("text,label\n" + "\n".join(labels) + "\n")
    rte = home / "glue" / "RTE"
    rte.mkdir(parents=True)
    for split in ("train", "dev"):
        rows = [f"{n}\t{a}\t{a}\t{'entailment' if n % 2 else 'not_entailment'}"
                for n, a in enumerate(lines[:16])]  # fmt: skip
        (rte / f"{split}.tsv").write_text(
            "index\tsentence1\tsentence2\tlabel\n" + "\n".join(rows) + "\n"
        )
    steps = [
        "tokenizer train text.txt --size 90 --out words",
        "prepare documents.txt --tokenizer words --out shards --workers 1 --held-out 0.1",
        "pretrain tiny-bert --data shards --out finished --view none --set train.steps=4 "
        "--set data.length=16 --set train.batch_tokens=256 --set train.micro_tokens=256",
        "finetune finished/model labels.csv --out classifier --epochs 1",
    ]
    for words in steps:
        status, said = run(words.split(), home, None)
        assert status == 0, (words, said)
    shutil.copytree(home / "finished" / "model", home / "model")


def old(place: Path) -> None:
    """Something that lies where the result goes: a file of an earlier run."""
    if place.suffix:
        place.write_text("from before")


def nothing(place: Path) -> None:
    """Nothing lies there."""


def main_attack() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verb", help="only verbs that begin so")
    parser.add_argument("--limits", type=int, nargs="+", default=LIMITS)
    parser.add_argument("--out", type=Path, help="where to store the counts")
    options = parser.parse_args()
    faults: list[str] = []
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        prepare_home(home)
        for verb, (out, words) in VERBS.items():
            if options.verb and not verb.startswith(options.verb):
                continue
            cases = [(f"full after {limit:,} bytes", out, limit) for limit in options.limits]
            cases.append(("a name of 300 characters", f"{'x' * 300}{Path(out).suffix}", None))
            cases.append(("a folder that is a file", "text.txt/inside" + Path(out).suffix, None))
            if Path(out).suffix:
                cases.append(("/dev/full", "/dev/full", None))
            for what, name, limit in cases:
                if name.startswith("text.txt"):
                    target = words.replace("OUT", name)
                    status, said = run(target.split(), home, None)
                    wrong = fault(status, said) or ("" if status == 2 else "not refused")
                    wrong = f"{wrong}: {said.strip()[-300:]}" if wrong else ""
                else:
                    wrong = judge(words, name, home, limit, old if limit is not None else nothing)
                counts["runs"] += 1
                counts["faults"] += bool(wrong)
                if wrong:
                    faults.append(f"{verb}, {what}: {wrong}")
                    print(faults[-1], flush=True)
    print(dict(counts))
    if options.out:
        stored = json.loads(options.out.read_text()) if options.out.is_file() else {}
        stored["full_disks"] = {**counts, "verbs": len(VERBS)}
        options.out.write_text(json.dumps(stored, indent=1) + "\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main_attack()
