"""The folder beside an output directory that stores an unfinished fine-tuning run."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from shutil import rmtree
from types import FrameType
from typing import Any

from torch import nn

from bertsmith.checkpoint import locate, read_sentence
from bertsmith.checkpoint.files import readable
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import digest, writing
from bertsmith.finetuning.result import TrainingRun
from bertsmith.finetuning.settings import RunSettings
from bertsmith.finetuning.tuning import History
from bertsmith.folders import check_replaceable
from bertsmith.foreign import read_table
from bertsmith.store import WorkFolder, fingerprint
from bertsmith.tasks.splits import Splits
from bertsmith.train.distributed import Ranks, assign
from bertsmith.train.state import Checkpoints

RESUME, OVERWRITE = setting_name("resume", True), setting_name("overwrite", True)
INTERRUPTED = f"an interrupted run; continue it with {RESUME}, or start again with {OVERWRITE}"
ADVICE = "use the same options, or remove the folder to start again"
SENTENCES = {name: f"the {name} changed since" for name in ("model", "data")}
ENDING = ".partial"
MADE_OF = {".json", ".txt", ".model", ".safetensors", ".bin"}  # files of a model
Scores = dict[str, dict[str, float] | None]  # split → its scores


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM stopped fine-tuning; the message says what was saved."""

    def __str__(self) -> str:
        return str(BertsmithError(*self.args))


class PartialFolder:
    """An interrupted command's plan, finished runs, best weights and state, beside its output."""

    def __init__(self, out: str | Path) -> None:
        path = Path(os.path.realpath(out))
        self.folder = path.with_name(path.name + ENDING)
        self.store = WorkFolder(self.folder)
        self.best = Checkpoints(self.folder / "best", keep=1)

    def start(self, out: Path, plan: Mapping[str, Any], resume: bool, overwrite: bool) -> None:
        """Make the folder, or take up the one of an interrupted command."""
        folder, begun = self.folder, self.store.begun()
        with writing(folder):
            exists = folder.exists()
            foreign = exists and not begun and any(folder.iterdir())
        if foreign:
            raise BertsmithError(
                f"{folder}: not a bertsmith run, but this run needs its name; rename or remove it"
            )
        if resume and not begun:
            raise BertsmithError(f"{out}: no interrupted run to resume (there is no {folder})")
        if resume:
            self.store.demand_same(plan, ADVICE, SENTENCES)
        elif begun and not overwrite:
            raise BertsmithError(f"{out}: {INTERRUPTED}")
        else:
            with writing(folder):
                if exists:
                    rmtree(folder)
            self.store.begin(plan)

    def state(self, settings: RunSettings) -> Checkpoints:
        """The state of a run with these settings."""
        return Checkpoints(self.folder / f"state-{_key(settings)}", keep=1)

    def finish(self, settings: RunSettings, run: TrainingRun, best: bool) -> None:
        """Record a finished run, and if it is the best so far, its weights."""
        if best:
            tensors = Ranks.alone(run.bert.device).gather(dict(run.bert.model.named_parameters()))
            number = (self.best.steps() or [0])[-1] + 1
            self.best.save(number, {"model": tensors}, {"key": _key(settings)})
        content = {"settings": settings.model_dump(), "history": asdict(run.history)}
        self.store.finish(f"run-{_key(settings)}", content | {"scores": run.scores})
        rmtree(self.state(settings).folder, ignore_errors=True)

    def finished(self, settings: RunSettings) -> tuple[History, Scores] | None:
        """The history and scores of a finished run."""
        content = self.store.finished(f"run-{_key(settings)}", history=dict, scores=dict)
        try:
            return (History(**content["history"]), content["scores"]) if content else None
        except TypeError:
            return None  # of another version: it is trained again

    def load_best(self, settings: RunSettings, model: nn.Module) -> bool:
        """Give a model the weights of a finished run; False if they are not the stored ones."""
        saved, _ = self.best.newest()
        if saved is None or saved.numbers.get("key") != _key(settings):
            return False
        for name, parameter in model.named_parameters():
            assign(parameter, saved.tensors["model"][name])
        return True

    @property
    def holds_something(self) -> bool:
        """Is there anything to resume from?"""
        return any(self.folder.glob("run-*.json")) or any(self.folder.glob("state-*/step-*"))


def data_sum(splits: Splits) -> str:
    """A SHA-256 sum of all examples."""
    total = hashlib.sha256()
    for dataset in (splits.train, splits.dev, splits.test):
        total.update(b"\x00")
        for example in () if dataset is None else dataset.examples:
            values = [getattr(example, one.name) for one in fields(example) if one.name != "where"]
            total.update(repr(values).encode("utf-8", "surrogatepass"))
    return total.hexdigest()


def sum_of(paths: Iterable[Path]) -> str:
    """One SHA-256 sum for several files."""
    return fingerprint({path.name: digest(path) for path in paths})


def model_sum(model: str | Path) -> str:
    """The sum of all that a model is made of: weights, config, vocabulary."""
    directory = locate(model)
    directory, _ = read_sentence(directory) or (directory, None)
    with readable(directory):
        files = [path for path in directory.iterdir() if path.suffix in MADE_OF and path.is_file()]
        return sum_of(files)


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM end the work as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _key(settings: RunSettings) -> str:
    return hashlib.sha256(settings.model_dump_json().encode()).hexdigest()[:16]


def is_interrupted(out: Path) -> bool:
    """Does a directory hold the best epoch of a run that was interrupted?"""
    return bool(_report(out).get("interrupted"))


def check_out(out: str | Path, overwrite: bool = False, resume: bool = False) -> None:
    """Refuse an output directory that may not be written, before any work is done."""
    with writing(out):  # names that are too long
        report, stored = _report(out), PartialFolder(out).folder.exists()
    interrupted = bool(report.get("interrupted"))
    if not overwrite and stored and interrupted and not resume:
        raise BertsmithError(f"{out}: {INTERRUPTED}")
    if not overwrite and resume and "interrupted" in report and not interrupted:
        if stored:
            raise BertsmithError(f"{out}: holds an older model; use {RESUME} with {OVERWRITE}")
        raise BertsmithError(f"{out}: this run has ended; there is nothing to resume")
    check_replaceable(out, overwrite or (resume and interrupted))


def _report(out: str | Path) -> dict[str, Any]:
    return read_table(Path(out) / "report.json") or {}
