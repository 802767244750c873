"""The folder beside an output directory that stores an unfinished fine-tuning run."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from shutil import rmtree
from types import FrameType
from typing import Any

from torch import nn

from bertsmith.errors import BertsmithError
from bertsmith.files import UNREADABLE, one_line, read_whole, write_json, write_text, writing
from bertsmith.finetuning.session import History, Session
from bertsmith.finetuning.settings import Settings
from bertsmith.folders import check_replaceable
from bertsmith.tasks.splits import Splits
from bertsmith.train.distributed import Ranks, assign
from bertsmith.train.state import Checkpoints

INTERRUPTED = "an interrupted run; continue it with --resume, or start again with --overwrite"
ENDING, PLAN = ".partial", "plan.json"
LARGEST = 64 << 20  # bytes of a report.json
Scores = dict[str, dict[str, float] | None]  # split → its scores


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM stopped fine-tuning; the message says what was saved."""


class Work:
    """What is kept: the plan, finished runs, the best weights so far, the state of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.best = Checkpoints(folder / "best", keep=1)
        self.resumed = False

    @classmethod
    def start(cls, out: Path, plan: Mapping[str, Any], resume: bool, overwrite: bool) -> Work:
        """Make the folder, or take up the one of an interrupted command."""
        work = cls(_partial(out))
        folder = work.folder
        with writing(folder):
            exists = folder.exists()
        if exists and not (folder / PLAN).is_file() and any(folder.iterdir()):
            raise BertsmithError(
                f"{folder}: not a bertsmith run, but this run needs its name; rename or remove it"
            )
        if resume:
            if not exists:
                raise BertsmithError(f"{out}: no interrupted run to resume (there is no {folder})")
            work._check(plan)
            work.resumed = True
        elif exists and not overwrite and (folder / PLAN).is_file():
            raise BertsmithError(f"{out}: {INTERRUPTED}")
        else:
            with writing(folder):
                if exists:
                    rmtree(folder)
                folder.mkdir(parents=True)
            write_json(folder / PLAN, plan)
        return work

    def _check(self, plan: Mapping[str, Any]) -> None:
        """Refuse to resume with another model, other data or other settings."""
        stored = _read(self.folder / PLAN)
        if not isinstance(stored.get("settings"), dict):
            raise BertsmithError(f"{self.folder / PLAN}: damaged; remove the folder to start again")
        for name in ("model", "data"):
            if stored.get(name) != plan[name]:
                raise BertsmithError(
                    f"{self.folder}: the {name} changed since; remove the folder to start again"
                )
        before, now = ({**one["settings"], **one["command"]} for one in (stored, dict(plan)))
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                raise BertsmithError(
                    f"{self.folder}: it was started with {name} {before.get(name)}, not "
                    f"{now.get(name)}; use the same options, or remove the folder to start again"
                )

    def session(self, settings: Settings) -> Session:
        """The state of a run with these settings."""
        return Session(self.folder / f"state-{_key(settings)}")

    def finish(self, settings: Settings, history: History, scores: Scores) -> None:
        """Record a finished run."""
        content = {
            "settings": settings.model_dump(),
            "history": asdict(history),
            "scores": scores,
        }
        path = self.folder / f"run-{_key(settings)}.json"
        write_text(path, json.dumps(content))  # not write_json: losses may be NaN

    def finished(self, settings: Settings) -> tuple[History, Scores] | None:
        """The history and scores of a finished run."""
        path = self.folder / f"run-{_key(settings)}.json"
        if not path.is_file():
            return None
        content = _read(path)
        try:
            return History(**content["history"]), dict(content["scores"])
        except (KeyError, TypeError, ValueError):
            return None  # cut short: it is trained again

    def keep_best(self, settings: Settings, model: nn.Module, ranks: Ranks) -> None:
        """Store the weights of the best finished run."""
        tensors = ranks.gather(dict(model.named_parameters()))
        number = (self.best.steps() or [0])[-1] + 1
        self.best.save(number, {"model": tensors}, {"key": _key(settings)})

    def load_best(self, settings: Settings, model: nn.Module) -> bool:
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

    def remove(self) -> None:
        """Remove the folder."""
        rmtree(self.folder, ignore_errors=True)


def data_sum(splits: Splits) -> str:
    """A SHA-256 sum of all examples."""
    total = hashlib.sha256()
    for dataset in (splits.train, splits.dev, splits.test):
        total.update(b"\x00")
        for example in () if dataset is None else dataset.examples:
            values = [getattr(example, one.name) for one in fields(example) if one.name != "where"]
            total.update(repr(values).encode("utf-8", "surrogatepass"))
    return total.hexdigest()


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


def _key(settings: Settings) -> str:
    return hashlib.sha256(settings.model_dump_json().encode()).hexdigest()[:16]


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (*UNREADABLE, ValueError, RecursionError) as error:
        raise BertsmithError(f"{path}: damaged ({one_line(error)})") from error
    return content if isinstance(content, dict) else {}


def is_interrupted(out: Path) -> bool:
    """Does a directory hold the best epoch of a run that was interrupted?"""
    return bool(_report(out).get("interrupted"))


def check_out(out: str | Path, overwrite: bool = False, resume: bool = False) -> None:
    """Refuse an output directory that may not be written, before any work is done."""
    with writing(out):  # names that are too long
        report, stored = _report(Path(out)), _partial(out).exists()
    interrupted = bool(report.get("interrupted"))
    if not overwrite and stored and interrupted and not resume:
        raise BertsmithError(f"{out}: {INTERRUPTED}")
    if not overwrite and resume and "interrupted" in report and not interrupted:
        if stored:
            raise BertsmithError(f"{out}: holds an older model; use --resume with --overwrite")
        raise BertsmithError(f"{out}: this run has ended; there is nothing to resume")
    check_replaceable(out, overwrite or (resume and interrupted))


def _partial(out: str | Path) -> Path:
    """The folder in which an interrupted command keeps its state."""
    place = Path(os.path.realpath(out))
    return place.with_name(place.name + ENDING)


def _report(out: Path) -> dict[str, Any]:
    """The report in an output directory; empty if there is none."""
    try:
        content = json.loads(read_whole(out / "report.json", LARGEST))
    except (BertsmithError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
