"""The known benchmarks from local files: fine-tune, several seeds, one row a task."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.tasks.data import GLUE, Dataset, find_splits, glue_folders, read_data, read_glue
from bertsmith.tasks.finetune import Splits, finetune, split_off
from bertsmith.tasks.finetune.loop import Watcher
from bertsmith.tasks.metrics import Summary, over_seeds

HELD = 0.2  # of the articles, where SQuAD's training file is not there


@dataclass(frozen=True)
class Row:
    """One task: what was scored, how often, and how well; or why it was not."""

    task: str
    scores: dict[str, Summary] = field(default_factory=dict)
    train: int = 0
    scored: int = 0
    note: str = ""

    @property
    def mean(self) -> float:
        """The mean of its scores."""
        return sum(one.mean for one in self.scores.values()) / len(self.scores)


def run_glue(
    model: str | Path,
    folder: str | Path,
    tasks: Sequence[str] = (),
    *,
    seeds: int = 1,
    limit: int = 0,
    watch: Watcher | None = None,
    device: str | None = None,
    **settings: Any,
) -> Iterator[Row]:
    """The tasks of GLUE in a folder; those that are not there come with the reason."""
    unknown = set(tasks) - set(GLUE)
    if unknown:
        raise BertsmithError(f"unknown GLUE task {min(unknown)!r}; known: {', '.join(GLUE)}")
    here = glue_folders(folder)
    chosen = tuple(tasks) or tuple(GLUE)
    if not set(chosen) & set(here):
        raise BertsmithError(f"{folder}: there is no task of GLUE in it ({', '.join(chosen)})")
    for name in chosen:
        if name not in here:
            yield Row(name, note="absent: no folder of it")
            continue
        try:
            train = read_glue(here[name], name, "train")
        except BertsmithError as error:
            yield Row(name, note=f"absent: {error}")
            continue
        dev, *more = (read_glue(here[name], name, split) for split in GLUE[name].dev)
        splits = Splits(_first(train, limit), dev, more[0] if more else None)
        metrics = GLUE[name].metrics
        yield from _rows(name, model, splits, metrics, seeds, watch, device, settings)


def run_squad(
    model: str | Path,
    folder: str | Path,
    *,
    version: str = "",
    seeds: int = 1,
    limit: int = 0,
    watch: Watcher | None = None,
    device: str | None = None,
    **settings: Any,
) -> Iterator[Row]:
    """SQuAD v1.1 and v2.0; without a training file, on a split of the dev file by articles."""
    files = _squad_files(Path(folder))
    chosen = [version] if version else sorted({found for found, _ in files})
    if not chosen or not any((one, "dev") in files for one in chosen):
        raise BertsmithError(f"{folder}: there is no dev-v1.1.json or dev-v2.0.json in it")
    for one in chosen:
        if (one, "dev") not in files:
            yield Row(f"squad v{one}", note="absent: no dev file of it")
            continue
        dev, note = read_data(files[one, "dev"], "answering"), ""
        if (one, "train") in files:
            train = read_data(files[one, "train"], "answering")
        else:
            train, dev, _ = split_off(dev, HELD)
            note = f"not the official split: {HELD:.0%} of the dev file's articles were held out"
        splits = Splits(_first(train, limit), dev)
        metrics = ("exact", "f1")
        for row in _rows(f"squad v{one}", model, splits, metrics, seeds, watch, device, settings):
            yield replace(row, note=note)


def run_conll(
    model: str | Path,
    folder: str | Path,
    *,
    seeds: int = 1,
    limit: int = 0,
    watch: Watcher | None = None,
    device: str | None = None,
    **settings: Any,
) -> Iterator[Row]:
    """Tagged sentences in a folder: entities of CoNLL-2003, or parts of speech of a treebank."""
    folder = Path(folder)
    if not folder.is_dir():
        raise BertsmithError(f"{folder}: there is no such folder")
    files = find_splits(folder)
    if "dev" not in files:
        raise BertsmithError(f"{folder}: no file in it is called dev or valid")
    train, dev = (read_data(files[split], "tagging") for split in ("train", "dev"))
    test = read_data(files["test"], "tagging") if "test" in files else None
    metrics = ("f1", "precision", "recall") if train.scheme else ("accuracy",)
    splits = Splits(_first(train, limit), dev, test)
    yield from _rows(folder.name, model, splits, metrics, seeds, watch, device, settings)
    if test is None:
        yield Row(f"{folder.name} (test)", note="absent: no test file")


def _rows(
    name: str,
    model: str | Path,
    splits: Splits,
    metrics: Sequence[str],
    seeds: int,
    watch: Watcher | None,
    device: str | None,
    settings: dict[str, Any],
) -> Iterator[Row]:
    """Train on a task; a row for its dev file, and for a second file that is scored."""
    # The last epoch is scored: choosing the best by what is reported would flatter it.
    given = {"keep": "last", "metric": metrics[0]} | settings
    result = finetune(model, splits, seeds=seeds, watch=watch, device=device, **given)
    for split, ending in (("dev", ""), ("test", " (2nd file)")):
        found = [run.dev if split == "dev" else run.test for run in result.seeds]
        scores = [one.scores for one in found if one is not None]
        if scores:
            summed = {name: over_seeds([one[name] for one in scores]) for name in metrics}
            count = int(scores[0]["count"])
            yield Row(name + ending, summed, len(splits.train), count)


def _squad_files(folder: Path) -> dict[tuple[str, str], Path]:
    """(version, split) → file."""
    if not folder.is_dir():
        raise BertsmithError(f"{folder}: there is no such folder")
    found = {}
    for path in sorted(folder.iterdir()):
        named = re.fullmatch(r"(train|dev)-v(\d\.\d)\.json(\.\w+)?", path.name)
        if named:
            found[named[2], named[1]] = path
    return found


def _first(dataset: Dataset[Any], limit: int) -> Dataset[Any]:
    """The first examples of a data set, where not all are wanted."""
    return replace(dataset, examples=dataset.examples[:limit]) if limit else dataset
