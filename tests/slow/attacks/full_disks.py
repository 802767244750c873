"""Disks that are full after so many bytes, and outputs whose names cannot be written.

A limit on the size of files stands for the full disk: every write beyond it fails. After each run
what was there before must be unchanged, and no temporary file may be left.
"""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

from slow.attacks.forked import Limits, Outcome, Tally, run

LIMITS = [0, 100, 3_000, 30_000, 300_000, 3_000_000]
ENOUGH = 1 << 30  # bytes, with which every verb ends well
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
        "tokenizer extend model new.txt --add 4 --min-frequency 1 --out OUT",
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
    "distill": ("vectors", "distill model --to static --width 16 --out OUT"),
    "index": ("INDEX", "index text.txt --model model --out OUT"),
    "glue": ("seeds.jsonl", "glue model glue --task rte --epochs 1 --out OUT"),
}


def prepare_home(home: Path) -> None:
    """The inputs that all verbs read."""
    lines = [" ".join(WORDS[(n + k * 5) % len(WORDS)] for k in range(9)) + "." for n in range(60)]
    (home / "text.txt").write_text("\n".join(lines) + "\n")
    (home / "new.txt").write_text("the violinist hears storms and riverbeds\n" * 9)
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
        outcome = run(words.split(), home)
        assert outcome.kind == "ok", (words, outcome)
    shutil.copytree(home / "finished" / "model", home / "model")


def content(folder: Path) -> dict[str, bytes]:
    """Every file with what is in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def attack(home: Path, match: str) -> Tally:
    """Let every verb that writes run into every limit and every impossible name."""
    prepare_home(home)
    tally = Tally()
    for verb, (out, words) in VERBS.items():
        if match not in verb:
            continue
        for limit in [*LIMITS, ENOUGH]:
            outcome = full(words, out, home, limit)
            if limit == ENOUGH and outcome.kind == "refused":
                outcome = outcome._replace(kind="refused with room on the disk")
            tally.add(f"{verb}, full after {limit:,} bytes", outcome)
        suffix = Path(out).suffix
        names = [f"results/{'x' * 300}{suffix}", f"text.txt/inside{suffix}"]
        for name in [*names, "/dev/full"] if suffix else names:
            outcome = run(words.replace("OUT", name).split(), home)
            if outcome.kind == "ok" and name != "/dev/full":
                outcome = outcome._replace(kind="not refused")
            tally.add(f"{verb} to {name[:20]}", outcome)
    return tally


def full(words: str, out: str, home: Path, limit: int) -> Outcome:
    """One run on a full disk, and a look at what is left."""
    results = home / "results"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir()
    if Path(out).suffix and not words.startswith("glue"):  # which continues its own file only
        (results / out).write_text("from before")
    before = content(home)
    outcome = run(words.replace("OUT", f"results/{out}").split(), home, Limits(file_bytes=limit))
    now = content(home)
    if outcome.kind == "refused":
        resumed = words.startswith(
            ("pretrain", "prepare", "glue", "index")
        )  # what they have done stays
        changed = [name for name in before if before[name] != now.get(name)]
        added = [] if resumed else [name for name in now if name not in before]
        if changed or added:
            outcome = outcome._replace(kind=f"changed or left {min(changed + added)}")
    if not outcome.bad and any(name.endswith(".part") for name in now):
        outcome = outcome._replace(kind="left a temporary file")
    return outcome
