"""Labels without training: accuracy of each way, beside chance and beside the peers' own code.

    python benchmarks/zero_shot.py FOLDER --out benchmarks/results/zero_shot.json

FOLDER holds ag_news_partial, banking77, glue_sst2 and glue_rte. Ways: masks (bertsmith-small, as it
comes), vectors (bertsmith-embed), entailment (bertsmith-small, fine-tuned on RTE here). The same
models are asked by their peers: sentence-transformers for vectors, and the zero-shot pipeline of
transformers for entailment. Templates and words for the labels were written before any test score
was seen; `--train` scores them on training rows, where there are some.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import lzma
import platform
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

import bertsmith as bs

NEWS = {
    "World": "world politics",
    "Sports": "sports",
    "Business": "business",
    "Sci/Tech": "science and technology",
}
MOOD = {"1": "great", "0": "terrible"}


def rows_of(path: Path, delimiter: str = ",") -> list[list[str]]:
    """The rows of a packed csv or tsv file."""
    text = lzma.decompress(path.read_bytes()).decode()
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    return list(csv.reader(io.StringIO(text), delimiter=delimiter, quoting=quoting))


def tasks_of(data: Path, count: int) -> dict[str, dict[str, Any]]:
    """Texts, labels and templates of the three data sets; at most `count` rows of each."""
    news = rows_of(data / "ag_news_partial" / "test.csv.xz")
    bank = rows_of(data / "banking77" / "test.csv.xz")[1:]
    mood = rows_of(data / "glue_sst2" / "dev.tsv.xz", "\t")[1:]
    names = sorted({row[1] for row in bank})
    made = {
        "AG news": {
            "rows": [(f"{title}. {text}", list(NEWS)[int(n) - 1]) for n, title, text in news],
            "labels": NEWS,
            "template": "This text is about {label}.",
        },
        "banking77": {
            "rows": [(row[0], row[1]) for row in bank],
            "labels": {name: name.replace("_", " ") for name in names},
            "template": "This text is about {label}.",
        },
        "SST-2": {
            "rows": [(row[0], row[1]) for row in mood],
            "labels": MOOD,
            "template": "It was {label}.",
        },
    }
    for one in made.values():
        random.Random(0).shuffle(one["rows"])
        one["rows"] = one["rows"][:count]
    return made


def scored(choose: Callable[..., Sequence[str]], task: dict[str, Any]) -> dict[str, float]:
    """Accuracy, and texts a second."""
    texts, gold = zip(*task["rows"], strict=True)
    start = perf_counter()
    said = choose(list(texts), task["labels"], task["template"])
    seconds = perf_counter() - start
    right = sum(a == b for a, b in zip(said, gold, strict=True))
    return {"accuracy": right / len(gold), "texts_per_second": len(gold) / seconds}


def ours(model: Any, way: str) -> Callable[..., Sequence[str]]:
    """bertsmith's `choose_label`."""

    def choose(texts: list[str], labels: dict[str, str], template: str) -> Sequence[str]:
        found = model.choose_label(texts, labels, way=way, template=template)
        return [one.label for one in found]

    return choose


def sentence_transformers(folder: str) -> Callable[..., Sequence[str]]:
    """Cosines of vectors, as the documentation of sentence-transformers shows it."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu")

    def choose(texts: list[str], labels: dict[str, str], template: str) -> Sequence[str]:
        sentences = [template.format(label=words) for words in labels.values()]
        made = model.encode([*texts, *sentences], normalize_embeddings=True)
        near = made[: len(texts)] @ made[len(texts) :].T
        return [list(labels)[place] for place in near.argmax(1)]

    return choose


def transformers(folder: str) -> Callable[..., Sequence[str]]:
    """The zero-shot pipeline."""
    from transformers import pipeline

    ask = pipeline("zero-shot-classification", model=folder, device="cpu", batch_size=32)

    def choose(texts: list[str], labels: dict[str, str], template: str) -> Sequence[str]:
        back = {words: name for name, words in labels.items()}
        found = ask(
            texts,
            candidate_labels=list(back),
            hypothesis_template=template.replace("{label}", "{}"),
        )
        return [back[one["labels"][0]] for one in found]

    return choose


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--count", type=int, default=872, help="texts of each data set")
    parser.add_argument("--entailment", help="an entailment model; default: fine-tune on RTE")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        entailing = given.entailment or str(Path(folder) / "entailment")
        if not given.entailment:
            data = given.data / "glue_rte"
            files = {"dev": str(data / "dev.tsv.xz"), "out": entailing}
            bs.finetune("bertsmith-small", str(data / "train.tsv.xz"), **files)
        from bertsmith.checkpoint import locate

        ways: dict[str, Callable[..., Sequence[str]]] = {
            "masks: bertsmith-small": ours(bs.load("bertsmith-small"), "masks"),
            "vectors: bertsmith-embed": ours(bs.load("bertsmith-embed"), "vectors"),
            "vectors: sentence-transformers": sentence_transformers(str(locate("bertsmith-embed"))),
            "entailment: bertsmith": ours(bs.load(entailing), "entailment"),
            "entailment: transformers": transformers(entailing),
        }
        results: dict[str, Any] = {"cpu": platform.processor(), "threads": given.threads}
        for name, task in tasks_of(given.data, given.count).items():
            results[name] = {"texts": len(task["rows"]), "chance": 1 / len(task["labels"])}
            for way, choose in ways.items():
                if len(task["labels"]) > 20 and way.startswith("entailment"):
                    task = {**task, "rows": task["rows"][:20]}  # 77 pairs for each text
                results[name][way] = {**scored(choose, task), "texts": len(task["rows"])}
                print(name, way, results[name][way], flush=True)
    if given.out:
        given.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
