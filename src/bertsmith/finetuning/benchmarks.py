"""Benchmarks from local files: fine-tune with several seeds, one row per task."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from bertsmith.checkpoint.files import readable
from bertsmith.data.folders import find_splits
from bertsmith.errors import BertsmithError
from bertsmith.files import writing
from bertsmith.finetuning import RunSettings, Splits, finetune, settings_for, setup, split_off
from bertsmith.finetuning.settings import check_seeds
from bertsmith.finetuning.setup import FACTOR, MUON_STEPS, may_leave_muon
from bertsmith.finetuning.work import model_sum, sum_of
from bertsmith.foreign import parse_table
from bertsmith.infer.loaded import pick_device
from bertsmith.metrics import Summary, bounds, over_seeds
from bertsmith.store import append_line, differences
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
# Of a file of trials: how each line begins, and its entries.
BEGINNING, OTHER = b'{"task": ', "choose another file"
KINDS: dict[str, Any] = {"task": str, "seed": int, "dev": dict, "test": dict | None}
KINDS |= {"minutes": float, "model": dict, "settings": dict, "data": str}


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


def run_glue(
    model: str | Path, folder: str | Path, tasks: Sequence[str] = (), **options: Any
) -> Iterator[BenchmarkRow]:
    """The tasks of GLUE in a folder, or why they are absent; `options` of `BenchmarkTrainer`."""
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
    if not any((number, "dev") in files for number in chosen):
        wanted = [version] if version else VERSIONS
        names = " or ".join(f"dev-v{number}.json" for number in wanted)
        raise BertsmithError(f"{folder}: there is no {names} in it")
    goals = {f"squad v{number}": (ANSWERING.name, ("exact", "f1")) for number in chosen}
    trainer = BenchmarkTrainer(model, goals, **options)
    for number, name in zip(chosen, goals, strict=True):
        if (number, "dev") not in files:
            yield BenchmarkRow(name, note="absent: no dev file of it")
            continue
        dev, notes = read_data(files[number, "dev"], ANSWERING.name), []
        if (number, "train") in files:
            train = read_data(files[number, "train"], ANSWERING.name)
        else:
            train, dev, _ = split_off(dev, HELD)
            notes = [f"not the official split: {HELD:.0%} of the dev file's articles were held out"]
        if any(question.impossible for question in train.examples):
            notes.append(TUNED)
        for row in trainer.rows(name, Splits(train, dev)):
            yield replace(row, note="; ".join(notes))


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
        watch: Any = None,
        device: str | None = None,
        out: str | Path | None = None,
        **given: Any,
    ) -> None:
        """`goals`: a task's name → its kind, and what it is scored by; `given`: settings.

        With `out`, each finished seed is stored in that file, and not trained again. `watch` is a
        `TrainingCallback` with `begin` (task, seed) and `finish` (trial, metrics, stored).
        """
        check_seeds(seeds)
        self.model, self.goals, self.seeds, self.limit = model, goals, seeds, limit
        self.watch, self.device, self.given = watch, device, given
        self.ranks = Ranks(pick_device(device))
        self.defaults = setup.default_settings(model, given)
        self.settings: dict[str, RunSettings] = {}
        for name, (kind, metrics) in goals.items():
            # The last epoch is scored: choosing the best by what is reported would flatter it.
            own: dict[str, Any] = {"keep": "last", "metric": metrics[0]}
            if name in GLUE and GLUE[name].symmetric:  # the order of a pair means nothing
                own["both_orders"] = True
            self.settings[name] = settings_for(kind, self.defaults, **{**own, **given})
        recorded = {name: self._recorded(name) for name in goals}
        self.file = None if out is None else TrialFile(Path(out), model, recorded)

    def rows(self, name: str, splits: Splits) -> Iterator[BenchmarkRow]:
        """A row for a task's dev file, and for a second file that is scored."""
        first = splits.train.examples[: self.limit or None]
        splits = replace(splits, train=replace(splits.train, examples=first))
        with self.ranks.process_group():
            trials = self._trials(name, splits)
        second = [trial.test for trial in trials if trial.test is not None]
        for scores, ending in (([trial.dev for trial in trials], ""), (second, SECOND)):
            if scores:
                summaries = {
                    metric: over_seeds([run[metric] for run in scores], bounds=bounds(metric))
                    for metric in self.goals[name][1]
                }
                counts = len(splits.train), int(scores[0]["count"])
                yield BenchmarkRow(name + ending, summaries, *counts)

    def _recorded(self, name: str) -> dict[str, Any]:
        """The settings that all seeds of a task share, as the file records them."""
        settings, kind = self.settings[name], self.goals[name][0]
        recorded = settings.model_dump() | {"limit": self.limit}
        del recorded["seed"]
        least = task_named(kind).least_steps
        if least and not setup.fixes_epochs(self.given, self.defaults):
            recorded["epochs"] = f"{settings.epochs}, or as many as make {least} steps"
        if may_leave_muon(settings, task_named(kind), self.given):
            factor = FACTOR if self.given.get("learning_rate") is None else 1
            recorded["optimizer"] = f"muon; with fewer than {MUON_STEPS} steps adamw at {factor} x"
        return recorded

    def _trials(self, name: str, splits: Splits) -> list[Trial]:
        kind, metrics = self.goals[name]
        watch = self.watch if self.ranks.first else None
        data, known = "", {}
        if self.file is not None:
            files = (splits.train, splits.dev, splits.test)
            data = sum_of(dataset.path for dataset in files if dataset is not None)
            known = self.file.finished(name, data)
        trials, settings = [], self.settings[name]
        examples = len(setup.learned_from(splits.train, settings))
        settings = setup.settings_by_steps(settings, kind, examples, self.given, self.defaults)
        for seed in range(settings.seed, settings.seed + self.seeds):
            trial = known.get(seed)
            if trial is None:
                if watch is not None:
                    watch.begin(name, seed)
                trial = self._train(name, splits, settings.changed(seed=seed))
                if self.file is not None and self.ranks.first:
                    self.file.add(trial, data)
            if watch is not None:
                watch.finish(trial, metrics, stored=seed in known)
            trials.append(trial)
        return trials

    def _train(self, name: str, splits: Splits, settings: RunSettings) -> Trial:
        began, values = time.perf_counter(), settings.model_dump()
        run = finetune(self.model, splits, watch=self.watch, device=self.device, **values).kept
        assert run.dev is not None
        minutes = round((time.perf_counter() - began) / 60, 2)
        test = None if run.test is None else run.test.scores
        return Trial(name, settings.seed, run.dev.scores, test, minutes)


def squad_files(folder: Path) -> dict[tuple[str, str], Path]:
    """(version, split) → file."""
    if not folder.is_dir():
        raise BertsmithError(f"{folder}: no such folder")
    files = {}
    for path in sorted(folder.iterdir()):
        if match := re.fullmatch(r"(train|dev)-v(\d\.\d)\.json(\.\w+)?", path.name):
            files[match[2], match[1]] = path
    return files


@dataclass(frozen=True)
class Trial:
    """What a task scored with one seed."""

    task: str
    seed: int
    dev: dict[str, float]
    test: dict[str, float] | None  # of the second file that is scored, where there is one
    minutes: float


class TrialFile:
    """Finished trials in a file that several commands may share: a line each, added at once."""

    def __init__(
        self, path: Path, model: str | Path, settings: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Read the file, if it is there: trials of this model, and made with a task's settings."""
        self.path, self.settings = path, settings
        self.model = {"name": str(model), "sha256": model_sum(model)}
        self.rows: list[dict[str, Any]] = []
        with writing(path):
            if path.exists() and not path.is_file():  # a device may have no end
                raise BertsmithError(f"{path}: not a regular file; name a .jsonl file")
        with readable(path, "not a file of scores"):
            content = path.read_bytes() if path.exists() else b""
            end = content.rfind(b"\n") + 1
            # The beginning of a line that was cut short when it was written is removed.
            cut = BEGINNING.startswith(content[end:][: len(BEGINNING)])
            lines = content[:end] if cut else content
            for number, line in enumerate(lines.splitlines(), 1):
                self.rows.append(_row(path, number, line))
        for row in self.rows:
            self._check(row)
        # Here, and not hours later, it turns out that there is nowhere to write.
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            if len(lines) < len(content):
                os.truncate(path, len(lines))

    def finished(self, task: str, data: str) -> dict[int, Trial]:
        """The trials of a task by their seeds; `data` is the sum of its files."""
        rows = [row for row in self.rows if row["task"] == task]
        if any(row["data"] != data for row in rows):
            raise BertsmithError(f"{self.path}: the files of {task} have changed since; {OTHER}")
        names = [one.name for one in fields(Trial)]
        return {row["seed"]: Trial(**{name: row[name] for name in names}) for row in rows}

    def add(self, trial: Trial, data: str) -> None:
        """Store a trial that is finished."""
        made_of = {"model": self.model, "settings": self.settings[trial.task], "data": data}
        append_line(self.path, asdict(trial) | made_of, flush=True)

    def _check(self, row: dict[str, Any]) -> None:
        model, task = row["model"], row["task"]
        if model["sha256"] != self.model["sha256"]:
            same = model["name"] == self.model["name"]
            other = "this model as it was before" if same else f"another model, {model['name']}"
            raise BertsmithError(f"{self.path}: holds scores of {other}; {OTHER}")
        expected = self.settings.get(task, row["settings"])
        for name, then, now in differences(row["settings"], expected):
            how = f"{task} was trained with {name} {then}, not {now}"
            raise BertsmithError(f"{self.path}: {how}; {OTHER}")


def _row(path: Path, number: int, line: bytes) -> dict[str, Any]:
    row = parse_table(line) or {}
    typed = "test" in row and all(isinstance(row.get(name), kind) for name, kind in KINDS.items())
    if typed and {"name", "sha256"} <= row["model"].keys():
        return row
    raise BertsmithError(f"{path}, line {number}: not a finished seed of a benchmark; {OTHER}")
