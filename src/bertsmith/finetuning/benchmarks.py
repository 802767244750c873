"""Benchmarks from local files: fine-tune with several seeds, one row per task."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from bertsmith.data.folders import find_splits
from bertsmith.errors import BertsmithError
from bertsmith.finetuning import RunSettings, Splits, finetune, settings_for, split_off
from bertsmith.finetuning.defaults import (
    FACTOR,
    LEAST_STEPS,
    MUON_STEPS,
    default_settings,
    fixes_epochs,
    learned_from,
    may_leave_muon,
    settings_by_steps,
)
from bertsmith.finetuning.history import TrainingCallback
from bertsmith.finetuning.settings import check_seeds
from bertsmith.finetuning.trials import Trial, TrialFile, sum_of
from bertsmith.infer.loaded import pick_device
from bertsmith.metrics import Summary, bounds, over_seeds
from bertsmith.tasks.answering.task import TASK as ANSWERING
from bertsmith.tasks.glue import GLUE, glue_folders, read_glue
from bertsmith.tasks.read import read_data
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.tagging.task import TASK as TAGGING
from bertsmith.train.distributed import Ranks

VERSIONS = ("1.1", "2.0")  # of SQuAD
HELD = 0.2  # of the articles, where SQuAD's training file is not there
SECOND = " (2nd file)"
TUNED = (
    "the threshold for no answer was tuned on the scored file: compare with best_exact and best_f1"
    " of the official script"
)


@dataclass(frozen=True)
class BenchmarkRow:
    """One task: what was scored, how often, and how well; or why it was not."""

    task: str
    scores: dict[str, Summary] = field(default_factory=dict)
    train: int = 0
    scored: int = 0
    note: str = ""

    @property
    def mean(self) -> float:
        """The mean of its scores, each the median over seeds."""
        return fmean(one.median for one in self.scores.values())


def by_task(rows: Iterable[BenchmarkRow]) -> dict[str, float]:
    """Each task's one number; of a task with two dev files their mean, as GLUE has it."""
    means: dict[str, list[float]] = {}
    for row in rows:
        if row.scores:
            means.setdefault(row.task.removesuffix(SECOND), []).append(row.mean)
    return {task: fmean(values) for task, values in means.items()}


class BenchmarkCallback(TrainingCallback, Protocol):
    """A callback for the progress of a benchmark."""

    def begin(self, task: str, seed: int) -> None:
        """A task begins to train."""

    def finish(self, trial: Trial, metrics: Sequence[str], stored: bool) -> None:
        """A task is trained and scored, or its scores are read from a file."""


def run_glue(
    model: str | Path, folder: str | Path, tasks: Sequence[str] = (), **options: Any
) -> Iterator[BenchmarkRow]:
    """The tasks of GLUE in a folder; those that are not there come with the reason.

    `options` are those of `BenchmarkTrainer`.
    """
    unknown = set(tasks) - set(GLUE)
    if unknown:
        raise BertsmithError(f"unknown GLUE task {min(unknown)!r}; known: {', '.join(GLUE)}")
    here = glue_folders(folder)
    chosen = tuple(tasks) or tuple(GLUE)
    if not set(chosen) & set(here):
        raise BertsmithError(f"{folder}: there is no task of GLUE in it ({', '.join(chosen)})")
    goals = {name: (GLUE[name].task, GLUE[name].metrics) for name in chosen}
    trainer = BenchmarkTrainer(model, goals, **options)
    for name in chosen:
        if name not in here:
            yield BenchmarkRow(name, note="absent: no folder of it")
            continue
        try:
            train = read_glue(here[name], name, "train")
            dev, *more = (read_glue(here[name], name, split) for split in GLUE[name].dev)
        except BertsmithError as error:
            yield BenchmarkRow(name, note=f"absent: {error.for_everyone()}")
            continue
        yield from trainer.rows(name, Splits(train, dev, more[0] if more else None))


def run_squad(
    model: str | Path, folder: str | Path, *, version: str = "", **options: Any
) -> Iterator[BenchmarkRow]:
    """SQuAD v1.1 and v2.0; without a training file, on a split of the dev file by articles."""
    files = squad_files(Path(folder))
    chosen = [version] if version else sorted({number for number, _ in files})
    if not chosen or not any((one, "dev") in files for one in chosen):
        wanted = " or ".join(f"dev-v{one}.json" for one in ([version] if version else VERSIONS))
        raise BertsmithError(f"{folder}: there is no {wanted} in it")
    goals = {f"squad v{one}": (ANSWERING.name, ("exact", "f1")) for one in chosen}
    trainer = BenchmarkTrainer(model, goals, **options)
    for one in chosen:
        if (one, "dev") not in files:
            yield BenchmarkRow(f"squad v{one}", note="absent: no dev file of it")
            continue
        dev, note = read_data(files[one, "dev"], ANSWERING.name), ""
        if (one, "train") in files:
            train = read_data(files[one, "train"], ANSWERING.name)
        else:
            train, dev, _ = split_off(dev, HELD)
            note = f"not the official split: {HELD:.0%} of the dev file's articles were held out"
        tuned = TUNED if any(question.impossible for question in train.examples) else ""
        for row in trainer.rows(f"squad v{one}", Splits(train, dev)):
            yield replace(row, note="; ".join(filter(None, (note, tuned, row.note))))


def run_conll(model: str | Path, folder: str | Path, **options: Any) -> Iterator[BenchmarkRow]:
    """Tagged sentences in a folder: entities of CoNLL-2003, or parts of speech of a treebank."""
    folder = Path(folder)
    if not folder.is_dir():
        raise BertsmithError(f"{folder}: no such folder")
    files = find_splits(folder)
    if "dev" not in files:
        raise BertsmithError(f"{folder}: no file in it is called dev or valid")
    train, dev = (read_data(files[split], TAGGING.name) for split in ("train", "dev"))
    test = read_data(files["test"], TAGGING.name) if "test" in files else None
    metrics = ("f1", "precision", "recall") if train.scheme else ("accuracy",)
    goals = {folder.name: (TAGGING.name, metrics)}
    trainer = BenchmarkTrainer(model, goals, **options)
    yield from trainer.rows(folder.name, Splits(train, dev, test))
    if test is None:
        yield BenchmarkRow(f"{folder.name} (test)", note="absent: no test file")


class BenchmarkTrainer:
    """Trains the tasks of one command, each with every seed, unless a file has its scores."""

    def __init__(
        self,
        model: str | Path,
        goals: Mapping[str, tuple[str, Sequence[str]]],
        seeds: int = 1,
        limit: int = 0,
        watch: BenchmarkCallback | None = None,
        device: str | None = None,
        out: str | Path | None = None,
        **given: Any,
    ) -> None:
        """`goals`: a task's name → its kind, and what it is scored by; `given`: settings.

        With `out`, each finished seed is stored in that file, and not trained again.
        """
        check_seeds(seeds)
        self.model, self.goals, self.seeds, self.limit = model, goals, seeds, limit
        self.watch, self.device, self.given = watch, device, given
        self.ranks = Ranks(pick_device(device))
        self.defaults = defaults = default_settings(model, given)
        # The last epoch is scored: choosing the best by what is reported would flatter it.
        self.settings = {
            name: settings_for(
                kind, defaults, **{"keep": "last", "metric": metrics[0], **_orders(name), **given}
            )
            for name, (kind, metrics) in goals.items()
        }
        self.file: TrialFile | None = None
        if out is not None:
            recorded = {name: self._recorded(name) for name in goals}
            self.file = TrialFile(Path(out), model, recorded)

    def rows(self, name: str, splits: Splits) -> Iterator[BenchmarkRow]:
        """A row for a task's dev file, and for a second file that is scored."""
        first = splits.train.examples[: self.limit or None]
        splits = replace(splits, train=replace(splits.train, examples=first))
        metrics = self.goals[name][1]
        with self.ranks.process_group():
            trials = self._trials(name, splits)
        second = [one.test for one in trials if one.test is not None]
        for scores, ending in (([one.dev for one in trials], ""), (second, SECOND)):
            if scores:
                summed = {
                    metric: over_seeds([one[metric] for one in scores], bounds=bounds(metric))
                    for metric in metrics
                }
                counts = len(splits.train), int(scores[0]["count"])
                yield BenchmarkRow(name + ending, summed, *counts)

    def _recorded(self, name: str) -> dict[str, Any]:
        """The settings that all seeds of a task share, as the file records them."""
        settings, kind = self.settings[name], self.goals[name][0]
        recorded = settings.model_dump() | {"limit": self.limit}
        del recorded["seed"]
        if not fixes_epochs(self.given, self.defaults):
            recorded["epochs"] = f"{settings.epochs}, or as many as make {LEAST_STEPS} steps"
        if may_leave_muon(settings, task_named(kind), self.given):
            factor = FACTOR if self.given.get("learning_rate") is None else 1
            recorded["optimizer"] = f"muon; with fewer than {MUON_STEPS} steps adamw at {factor} x"
        return recorded

    def _trials(self, name: str, splits: Splits) -> list[Trial]:
        """The scores of each seed."""
        sets = (splits.train, splits.dev, splits.test)
        data, known = "", {}
        if self.file is not None:
            data = sum_of(one.path for one in sets if one is not None)
            known = self.file.finished(name, data)
        trials, settings, kind = [], self.settings[name], self.goals[name][0]
        examples = len(learned_from(splits.train, settings))
        settings = settings_by_steps(settings, kind, examples, self.given, self.defaults)
        first = settings.seed
        for seed in range(first, first + self.seeds):
            trial = known.get(seed)
            if trial is None:
                trial = self._train(name, splits, settings.changed(seed=seed))
                if self.file is not None and self.ranks.first:
                    self.file.add(trial, data)
            if self.watch is not None and self.ranks.first:
                self.watch.finish(trial, self.goals[name][1], stored=seed in known)
            trials.append(trial)
        return trials

    def _train(self, name: str, splits: Splits, settings: RunSettings) -> Trial:
        if self.watch is not None and self.ranks.first:
            self.watch.begin(name, settings.seed)
        began = time.perf_counter()
        run = finetune(
            self.model, splits, watch=self.watch, device=self.device, **settings.model_dump()
        ).kept
        assert run.dev is not None
        test = None if run.test is None else run.test.scores
        minutes = (time.perf_counter() - began) / 60
        return Trial(name, settings.seed, run.dev.scores, test, round(minutes, 2))


def squad_files(folder: Path) -> dict[tuple[str, str], Path]:
    """(version, split) → file."""
    if not folder.is_dir():
        raise BertsmithError(f"{folder}: no such folder")
    files = {}
    for path in sorted(folder.iterdir()):
        if match := re.fullmatch(r"(train|dev)-v(\d\.\d)\.json(\.\w+)?", path.name):
            files[match[2], match[1]] = path
    return files


def _orders(name: str) -> dict[str, bool]:
    """Both orders of pairs are learned from where a task of GLUE does not tell them apart."""
    return {"both_orders": True} if name in GLUE and GLUE[name].symmetric else {}
