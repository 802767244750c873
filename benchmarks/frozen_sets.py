"""Labelled sets with vectors of bertsmith-embed, computed once, and a linear learner on them."""

from __future__ import annotations

import csv
import io
import json
import lzma
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

import bertsmith
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.read import read_data
from bertsmith.tasks.task import Prediction

DATA = Path(os.environ.get("BERTSMITH_DATA", "../shared/data"))
WIDTH = 128  # principal components of the vectors
STRENGTH = 10.0  # C, for vectors whose mean squared norm is 1
CUT = 1000  # characters of a text
MOST = 15_000
LABELS = 6  # of a set of few labels
SHORT = {"imdb": 120, "reviews": 60, "articles": 50}  # characters; whole texts are easy, or slow


def opened(name: str) -> io.StringIO:
    """A file of the shared data, decompressed."""
    return io.StringIO(lzma.open(DATA / name).read().decode())


def tabbed(name: str) -> list[list[str]]:
    """The rows of a file with tabs."""
    return list(csv.reader(opened(name), delimiter="\t", quoting=csv.QUOTE_NONE))


def domains() -> list[tuple[str, str]]:
    """Questions of SubjQA, each with the domain of its product."""
    rows = []
    for path in sorted((DATA / "subjqa").glob("*__*.csv.xz")):
        table = csv.DictReader(opened(f"subjqa/{path.name}"))
        rows += [(row["question"], path.name.split("__")[0]) for row in table]
    return sorted(set(rows))


def reviews() -> list[tuple[str, str]]:
    """Reviews of SubjQA, each with the domain of its product."""
    rows = set()
    for path in sorted((DATA / "subjqa").glob("*__*.csv.xz")):
        table = csv.DictReader(opened(f"subjqa/{path.name}"))
        rows |= {(row["review"], path.name.split("__")[0]) for row in table}
    return sorted(rows)


def articles() -> list[tuple[str, str]]:
    """Questions of SQuAD, each with the title of its article."""
    content = json.loads(opened("squad_dev/dev-v1.1.json.xz").read())["data"]
    paragraphs = [(one["title"], part) for one in content for part in one["paragraphs"]]
    return sorted({(qa["question"], title) for title, part in paragraphs for qa in part["qas"]})


SETS: dict[str, Callable[[], list[tuple[str, str]]]] = {
    "banking77": lambda: [
        (row["text"], row["category"])
        for split in ("train", "test")
        for row in csv.DictReader(opened(f"banking77/{split}.csv.xz"))
    ],
    "ag_news": lambda: [
        (f"{row[1]} {row[2]}", row[0]) for row in csv.reader(opened("ag_news_partial/test.csv.xz"))
    ],
    "sst2": lambda: [(row[0], row[1]) for row in tabbed("glue_sst2/train.tsv.xz")[1:]],
    "cola": lambda: [(row[3], row[1]) for row in tabbed("glue_cola/train.tsv.xz")],
    "imdb": lambda: [
        (row["text"], str(row["label"]))
        for row in map(json.loads, opened("imdb_sample/train.jsonl.xz"))
    ],
    "domains": domains,
    "reviews": reviews,
    "articles": articles,
}
CHOSEN_ON = ("cola", "imdb", "domains", "reviews", "articles")  # settings are chosen on these
REPORTED = ("banking77", "ag_news", "sst2")


class FrozenSet:
    """Rows of one set in a random order, with their vectors."""

    def __init__(self, name: str, cache: Path) -> None:
        rows = SETS[name]()
        Random(0).shuffle(rows)
        self.name, self.rows = name, [(text[:CUT], label) for text, label in rows[:MOST]]
        self.data = read_data(
            [{"text": text, "label": label} for text, label in self.rows], "classification"
        )
        path = cache / f"{name}.npy"
        if not path.exists():
            bert = bertsmith.load("bertsmith-embed", progress=False)
            np.save(path, bert.embed([text for text, _ in self.rows]))
        vectors = np.load(path)
        vectors = vectors - vectors.mean(0)
        _, _, axes = np.linalg.svd(vectors[:3000], full_matrices=False)
        vectors = vectors @ axes[:WIDTH].T
        self.vectors = vectors / np.sqrt((vectors**2).sum(1).mean())
        self.place = {id(one): number for number, one in enumerate(self.data.examples)}

    def of(self, examples: Sequence[Any]) -> np.ndarray[Any, Any]:
        """The vectors of some examples."""
        return self.vectors[[self.place[id(one)] for one in examples]]

    def part(self, numbers: Sequence[int]) -> Dataset[Any]:
        """The data set of some rows."""
        return read_only(self.data, [self.data.examples[number] for number in numbers])

    def learn(self, dataset: Dataset[Any]) -> Callable[[Sequence[Any]], list[Prediction]]:
        """Logistic regression on the vectors: a learner as `learning_curve` takes it."""
        labels = [one.label for one in dataset.examples]
        if len(set(labels)) == 1:
            return lambda examples: [Prediction(labels[0], 1.0)] * len(examples)
        model = fitted(self.of(dataset.examples), np.array(labels))

        def predict(examples: Sequence[Any]) -> list[Prediction]:
            chances = model.predict_proba(self.of(examples))
            return [
                Prediction(str(model.classes_[place]), float(row[place]))
                for place, row in zip(chances.argmax(1), chances, strict=True)
            ]

        return predict


def read_only(dataset: Dataset[Any], examples: list[Any]) -> Dataset[Any]:
    """A data set with other examples."""
    from dataclasses import replace

    return replace(dataset, examples=examples)


def fitted(vectors: Any, labels: Any) -> Any:
    """Logistic regression of one strength."""
    return LogisticRegression(C=STRENGTH, max_iter=100, tol=1e-3).fit(vectors, labels)
