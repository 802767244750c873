"""Benchmarks in their official layouts: GLUE's tasks and the locations of their files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.files import PACKED
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.read import read_data


@dataclass(frozen=True)
class Benchmark:
    """One task of GLUE: how its files are read, and its metrics."""

    task: str
    columns: Mapping[str, str]
    metrics: tuple[str, ...]
    dev: tuple[str, ...] = ("dev",)
    headerless: Mapping[str, str] = field(default_factory=dict)  # CoLA's train and dev
    symmetric: bool = False  # does the order of a pair mean nothing?


def _pairs(text: str, pair: str, label: str = "label") -> dict[str, str]:
    return {"text": text, "pair": pair, "label": label}


SENTENCES = ("sentence1", "sentence2")
ACCURACY, BOTH = ("accuracy",), ("accuracy", "f1")
CLASSES, NUMBERS = "classification", "regression"
QQP = _pairs("question1", "question2", "is_duplicate")
STS = {"text": "sentence1", "pair": "sentence2", "score": "score"}
MNLI = ("dev_matched", "dev_mismatched")
COLA = {"text": "4", "label": "2"}
GLUE: dict[str, Benchmark] = {
    "cola": Benchmark(CLASSES, {"text": "sentence"}, ("mcc",), headerless=COLA),
    "sst2": Benchmark(CLASSES, {"text": "sentence", "label": "label"}, ACCURACY),
    "mrpc": Benchmark(CLASSES, _pairs("#1 String", "#2 String", "Quality"), BOTH, symmetric=True),
    "stsb": Benchmark(NUMBERS, STS, ("pearson", "spearman"), symmetric=True),
    "qqp": Benchmark(CLASSES, QQP, BOTH, symmetric=True),
    "mnli": Benchmark(CLASSES, _pairs(*SENTENCES, "gold_label"), ACCURACY, dev=MNLI),
    "qnli": Benchmark(CLASSES, _pairs("question", "sentence"), ACCURACY),
    "rte": Benchmark(CLASSES, _pairs(*SENTENCES), ACCURACY),
    "wnli": Benchmark(CLASSES, _pairs(*SENTENCES), ACCURACY),
}
FOLDERS = {"sst2": "sst-2", "stsb": "sts-b"}  # in small letters, where not GLUE's name


def glue_folders(folder: str | Path) -> dict[str, Path]:
    """Return the GLUE tasks in a folder, by GLUE's names or as glue_NAME."""
    folder = Path(folder)
    if not folder.is_dir():
        raise BertsmithError(f"{folder}: no such folder")
    here = {path.name.lower(): path for path in sorted(folder.iterdir()) if path.is_dir()}
    folders = {}
    for name in GLUE:
        spellings = product((name, FOLDERS.get(name, name)), ("", "glue_"), ("", "_dev"))
        paths = (here.get(f"{before}{one}{after}") for one, before, after in spellings)
        if (path := next(filter(None, paths), None)) is not None:
            folders[name] = path
    return folders


def read_glue(folder: str | Path, name: str, split: str) -> Dataset[Any]:
    """Read a split of a GLUE task from its folder: train, dev (MNLI: dev_matched, ...) or test.

    Rows with a wrong number of cells are left out and counted, as in the official readers. Test
    files have no labels.
    """
    if name not in GLUE:
        raise BertsmithError(f"unknown GLUE task {name!r}; known: {', '.join(GLUE)}")
    benchmark, path = GLUE[name], _file(Path(folder), split)
    columns = dict(benchmark.columns)
    if split.startswith("test"):
        columns.pop("label", None)
        columns.pop("score", None)
    elif benchmark.headerless:
        columns = dict(benchmark.headerless)
    return read_data(path, benchmark.task, columns=columns, skip_ragged=True)


def _file(folder: Path, split: str) -> Path:
    """A split's file; of MRPC's training set the rebuilt one, where there is one, is whole."""
    for stem in (f"{split}_rebuilt", split):
        for ending in ("", *PACKED):
            path = folder / f"{stem}.tsv{ending}"
            if path.is_file():
                return path
    raise BertsmithError(f"{folder}: there is no {split}.tsv in it")
