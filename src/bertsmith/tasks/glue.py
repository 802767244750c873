"""Benchmarks in their official layouts: GLUE's tasks and the locations of their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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


GLUE: dict[str, Benchmark] = {
    "cola": Benchmark(
        "classification",
        {"text": "sentence"},
        ("mcc",),
        headerless={"text": "4", "label": "2"},
    ),
    "sst2": Benchmark("classification", {"text": "sentence", "label": "label"}, ("accuracy",)),
    "mrpc": Benchmark(
        "classification",
        {"text": "#1 String", "pair": "#2 String", "label": "Quality"},
        ("accuracy", "f1"),
        symmetric=True,
    ),
    "stsb": Benchmark(
        "regression",
        {"text": "sentence1", "pair": "sentence2", "score": "score"},
        ("pearson", "spearman"),
        symmetric=True,
    ),
    "qqp": Benchmark(
        "classification",
        {"text": "question1", "pair": "question2", "label": "is_duplicate"},
        ("accuracy", "f1"),
        symmetric=True,
    ),
    "mnli": Benchmark(
        "classification",
        {"text": "sentence1", "pair": "sentence2", "label": "gold_label"},
        ("accuracy",),
        dev=("dev_matched", "dev_mismatched"),
    ),
    "qnli": Benchmark(
        "classification",
        {"text": "question", "pair": "sentence", "label": "label"},
        ("accuracy",),
    ),
    "rte": Benchmark(
        "classification",
        {"text": "sentence1", "pair": "sentence2", "label": "label"},
        ("accuracy",),
    ),
    "wnli": Benchmark(
        "classification",
        {"text": "sentence1", "pair": "sentence2", "label": "label"},
        ("accuracy",),
    ),
}
FOLDERS = {"sst2": ("SST-2",), "stsb": ("STS-B",), "cola": ("CoLA",)}


def glue_folders(folder: str | Path) -> dict[str, Path]:
    """Return the GLUE tasks in a folder, by GLUE's names or as glue_NAME."""
    folder = Path(folder)
    if not folder.is_dir():
        raise BertsmithError(f"{folder}: no such folder")
    here = {path.name.lower(): path for path in sorted(folder.iterdir()) if path.is_dir()}
    found = {}
    for name in GLUE:
        called = [name, *(other.lower() for other in FOLDERS.get(name, ()))]
        spellings = [
            f"{before}{one}{after}"
            for one in called
            for before in ("", "glue_")
            for after in ("", "_dev")
        ]
        hit = next((here[spelling] for spelling in spellings if spelling in here), None)
        if hit is not None:
            found[name] = hit
    return found


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
