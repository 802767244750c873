"""The state of a run and its checkpoints: written atomically, verified when read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertsmith.errors import BertsmithError
from bertsmith.files import cause, digest, sync
from bertsmith.train.averages import Averages
from bertsmith.train.best import Best
from bertsmith.train.distributed import Ranks, assign
from bertsmith.train.optimizer import CompositeOptimizer

WRITING, REPLACED = ".writing-", ".replaced-"
Tensors = Mapping[str, Tensor]


@dataclass
class Progress:
    """The position of a run: everything in a checkpoint except tensors."""

    step: int = 0
    position: int = 0  # the next sample
    tokens: int = 0
    elapsed: float = 0.0  # seconds
    evaluated: int = -1  # the last step that was evaluated
    averaged: int = 0  # updates of the averages
    useful: float = 0.0  # share of the ranks' tokens that belong to samples, summed over steps
    skipped: int = 0  # bad steps in a row
    corpus: str = ""  # the fingerprint of the data
    corpora: list[int] = field(default_factory=list)  # of a mixture: tokens read from each
    closed: bool = False  # the budget is spent and the last evaluation done
    recent: list[float] = field(default_factory=list)  # norms of the last good steps
    counts: dict[str, int] = field(default_factory=dict)  # the ledger
    scores: dict[str, Any] = field(default_factory=dict)  # the most recent losses, those at start
    record: dict[str, Any] = field(default_factory=dict)  # of the logs: checksums, or all of it
    best: dict[str, Any] = field(default_factory=dict)  # the best evaluation
    ended: bool = False  # evaluations say that there is nothing more to expect

    @classmethod
    def of(cls, numbers: Mapping[str, Any]) -> Progress:
        """What a checkpoint has; older ones call the record `sums`."""
        later = {"record": numbers["sums"]} if "sums" in numbers else {}
        return cls(**{key: value for key, value in numbers.items() if key != "sums"} | later)


class Saved(NamedTuple):
    """A loaded checkpoint."""

    numbers: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]]  # file → its tensors


class TensorState:
    """The tensors of a run: weights, optimizer states, averages, the best weights."""

    def __init__(
        self,
        named: Mapping[str, nn.Parameter],
        optimizer: CompositeOptimizer,
        averages: Averages,
        best: Best,
    ) -> None:
        self.named, self.optimizer, self.averages, self.best = named, optimizer, averages, best
        self.names = {parameter: name for name, parameter in named.items()}

    def gather(self, ranks: Ranks) -> dict[str, dict[str, Tensor]]:
        """Gather full tensors in the CPU memory of the first rank: file → tensors."""
        states = {
            f"{self.names[parameter]}:{key}": torch.as_tensor(value)
            for parameter, state in self.optimizer.states()
            for key, value in state.items()
        }
        files: dict[str, Tensors] = {
            "model": self.named,
            "optimizer": states,
            "average": self.averages.values,
            "best": self.best.weights,
        }
        return {file: ranks.gather(tensors) for file, tensors in files.items() if tensors}

    def load(self, saved: Saved) -> None:
        """Load the tensors of a checkpoint."""
        for name, parameter in self.named.items():
            assign(parameter, saved.tensors["model"][name])
        for name, value in self.averages.values.items():
            assign(value, saved.tensors["average"][name])
        self.averages.updates = saved.numbers["averaged"]
        device = next(iter(self.named.values())).device
        best = {name: value.to(device) for name, value in saved.tensors.get("best", {}).items()}
        self.best.load(saved.numbers.get("best") or {}, best)
        stored: dict[str, dict[str, Tensor]] = {}
        for place, value in saved.tensors.get("optimizer", {}).items():
            name, _, key = place.rpartition(":")
            stored.setdefault(name, {})[key] = value
        for one in self.optimizer.optimizers:
            for group in one.param_groups:
                # Others read the step count on the CPU: on a GPU each read would wait for it.
                on_device = group.get("fused") or group.get("capturable")
                for parameter in group["params"]:
                    values = stored.get(self.names[parameter], {})
                    one.state[parameter] = dict(_states(parameter, values, bool(on_device)))


def _states(
    parameter: nn.Parameter, stored: Tensors, on_device: bool
) -> Iterator[tuple[str, Tensor]]:
    for key, value in stored.items():
        if value.ndim == 0:
            yield key, value.to(parameter.device) if on_device else value
        else:
            state = torch.zeros_like(parameter)
            assign(state, value)
            yield key, state


class Checkpoints:
    """The checkpoints of a run, `step-00000500` and so on; the last few are kept."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, in order."""
        names = {path.name for path in self.folder.glob("step-*")}
        numbers = (name[5:] for name in names if name.isascii() and name[5:].isdigit())
        return sorted(step for step in map(int, numbers) if self.path(step).name in names)

    def path(self, step: int) -> Path:
        """Where the checkpoint of a step is."""
        return self.folder / f"step-{step:08}"

    def save(self, step: int, tensors: Mapping[str, Tensors], numbers: Mapping[str, Any]) -> None:
        """Write a checkpoint: a new folder, flushed to the disk, then renamed into its place."""
        part = self.folder / f"{WRITING}step-{step:08}"
        try:
            self.sweep()
            part.mkdir(parents=True)
            for name, content in tensors.items():
                save_file(dict(content), part / f"{name}.safetensors")
            (part / "state.json").write_text(json.dumps(numbers, indent=1), "utf-8")
            sums = {path.name: digest(path) for path in sorted(part.iterdir())}
            (part / "manifest.json").write_text(json.dumps(sums, indent=1), "utf-8")
            for path in (*part.iterdir(), part):
                sync(path)
            if self.path(step).exists():
                self.path(step).rename(self.folder / f"{REPLACED}{self.path(step).name}")
            part.rename(self.path(step))
            sync(self.folder)
            self.sweep()
        except (OSError, SafetensorError) as error:
            shutil.rmtree(part, ignore_errors=True)
            last = self.steps()
            kept = f"; the one of step {last[-1]} is intact" if last else ""
            raise BertsmithError(
                f"{self.path(step)}: the checkpoint cannot be written ({cause(error)}){kept}"
            ) from error
        for old in self.steps()[: -self.keep]:
            shutil.rmtree(self.path(old), ignore_errors=True)

    def sweep(self) -> None:
        """Remove leftovers of an interrupted writer, restoring a checkpoint it had not replaced."""
        for part in self.folder.glob(f"{WRITING}*"):
            shutil.rmtree(part, ignore_errors=True)
        for old in self.folder.glob(f"{REPLACED}*"):
            place = self.folder / old.name.removeprefix(REPLACED)
            if place.exists():
                shutil.rmtree(old, ignore_errors=True)
            else:
                old.rename(place)

    def read(self, step: int) -> Saved:
        """Read a checkpoint; a damaged one is an error that names the file."""
        folder = self.path(step)
        try:
            sums = json.loads((folder / "manifest.json").read_text("utf-8"))
            for name in {"state.json", "model.safetensors"} - sums.keys():
                raise ValueError(f"manifest.json does not list {name}")
            for name, expected in sums.items():
                if digest(folder / name) != expected:
                    raise BertsmithError(f"{folder / name}: damaged (its SHA-256 sum differs)")
            numbers = json.loads((folder / "state.json").read_text("utf-8"))
            names = [name for name in sums if name.endswith(".safetensors")]
            tensors = {n.removesuffix(".safetensors"): load_file(folder / n) for n in names}
        except (OSError, ValueError, AttributeError, RecursionError, SafetensorError) as error:
            raise BertsmithError(f"{folder}: damaged ({cause(error)})") from error
        return Saved(numbers, tensors)

    def newest(self) -> tuple[Saved | None, list[str]]:
        """Return the newest intact checkpoint, and the problems of newer ones."""
        if any(self.folder.glob(f"{REPLACED}*")):
            self.sweep()
        faults: list[str] = []
        for step in reversed(self.steps()):
            try:
                return self.read(step), faults
            except BertsmithError as error:
                faults.append(str(error))
        return None, faults

    def forget_after(self, step: int) -> None:
        """Remove checkpoints of later steps, for example damaged ones."""
        for later in self.steps():
            if later > step:
                shutil.rmtree(self.path(later), ignore_errors=True)
