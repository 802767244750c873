"""Part of each training file as a dev file: to choose settings without the files that are reported.

    python benchmarks/small/split.py --data DATA --out OUT

DATA is a folder with GLUE's tasks (glue_cola, ...) and conll2003_en. OUT gets the same folders, in
which every fifth example of the training file (at most 2,000) is the dev file, and the others are
the training file; of CoNLL-2003 every fifth sentence.
"""

from __future__ import annotations

import argparse
import lzma
from pathlib import Path

TASKS = ("cola", "mrpc", "rte", "sst2", "stsb")
EVERY, MOST = 5, 2_000


def main() -> None:
    """Split the files of all tasks that are there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    for task in TASKS:
        folder = asked.data / f"glue_{task}"
        rebuilt = folder / "train_rebuilt.tsv.xz"
        path = rebuilt if rebuilt.exists() else folder / "train.tsv.xz"
        with lzma.open(path, "rt", encoding="utf-8", newline="") as stream:
            lines = stream.read().split("\n")
        lines = [line for line in lines if line.strip()]
        head = [] if task == "cola" else [lines.pop(0)]  # CoLA's files begin with an example
        step = max(EVERY, -(-len(lines) // MOST))
        parts = {
            "dev": lines[::step],
            "train": [line for place, line in enumerate(lines) if place % step],
        }
        (asked.out / folder.name).mkdir(parents=True, exist_ok=True)
        for name, rows in parts.items():
            text = "\n".join([*head, *rows]) + "\n"
            (asked.out / folder.name / f"{name}.tsv").write_text(text, "utf-8", newline="")
        print(task, {name: len(rows) for name, rows in parts.items()})
    split_tags(asked.data / "conll2003_en", asked.out / "conll2003_en")


def split_tags(folder: Path, out: Path) -> None:
    """Split a file of tagged words, whose sentences are separated by blank lines."""
    with lzma.open(folder / "train.txt.xz", "rt", encoding="utf-8", newline="") as stream:
        sentences = [one for one in stream.read().split("\n\n") if one.strip()]
    parts = {
        "valid": sentences[::EVERY],
        "train": [one for place, one in enumerate(sentences) if place % EVERY],
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in parts.items():
        (out / f"{name}.txt").write_text("\n\n".join(rows) + "\n", "utf-8", newline="")
    print(folder.name, {name: len(rows) for name, rows in parts.items()})


if __name__ == "__main__":
    main()
