"""The state of a run and its checkpoints: written atomically, verified when read."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertsmith.errors import BertsmithError
from bertsmith.files import cause, digest, sync
from bertsmith.train.distributed import Ranks, assign, is_sharded, shards_of
from bertsmith.train.optimizer import CompositeOptimizer, local_shard
from bertsmith.train.weights import Averages, Best

WRITING, REPLACED = ".writing-", ".replaced-"
SHARD = re.compile(r"-\d{5}-of-\d{5}(?=\.safetensors$)")
Tensors = Mapping[str, Tensor]
Parts = Mapping[str, Tensors]  # file → its tensors


@dataclass
class RunProgress:
    """The position of a run: everything in a checkpoint except tensors."""

    step: int = 0
    position: int = 0  # the next sample
    tokens: int = 0
    elapsed: float = 0.0  # seconds
    evaluated: int = -1  # the last step that was evaluated
    averaged: int = 0  # updates of the averages
    useful: float = 0.0  # share of the ranks' tokens that belong to samples, summed over steps
    skipped: int = 0  # bad steps in a row
    loss_scale: list[float] = field(default_factory=list)  # of float16, and its good steps
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
    def of(cls, numbers: Mapping[str, Any]) -> RunProgress:
        """Read the numbers of a checkpoint; older ones call the record `sums`."""
        return cls(**{"record" if key == "sums" else key: n for key, n in numbers.items()})


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
        self.shards = shards_of(named.values())

    def copied(self, ranks: Ranks) -> Parts:
        """Copy what this rank writes of a checkpoint to CPU memory: its shards; file → tensors.

        Tensors that are not sharded are written by the first rank.
        """
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
        writes = ranks.rank < self.shards  # with HSDP, the others have the same shards
        ending = f"-{ranks.rank + 1:05}-of-{self.shards:05}" if self.shards > 1 else ""
        return {
            f"{file}{ending}": {
                name: host_copy(local_shard(tensor))
                for name, tensor in tensors.items()
                if ranks.first or (writes and is_sharded(tensor))
            }
            for file, tensors in files.items()
            if tensors and writes
        }

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


def host_copy(tensor: Tensor) -> Tensor:
    """A copy in CPU memory; from a GPU, it is under way until an event that is recorded now."""
    on_gpu = tensor.device.type == "cuda"
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=on_gpu)
    return copy.copy_(tensor.detach(), non_blocking=on_gpu)


def _read_tensors(folder: Path, name: str, files: Iterable[str]) -> dict[str, Tensor]:
    """The tensors of a file, or of all its shards, concatenated."""
    shards: dict[str, list[Tensor]] = {}
    for file in sorted(file for file in files if SHARD.sub("", file) == name):
        for key, tensor in load_file(folder / file).items():
            shards.setdefault(key, []).append(tensor)
    return {key: torch.cat(own) if len(own) > 1 else own[0] for key, own in shards.items()}


class Checkpoints:
    """The checkpoints of a run, `step-00000500` and so on; the last few are kept.

    Files of sharded tensors are called `model-00001-of-00004.safetensors` and so on.
    """

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

    def save(self, step: int, parts: Parts, numbers: Mapping[str, Any]) -> None:
        """Write a checkpoint: a new folder, flushed to the disk, then renamed into its place."""
        self.begin(step)
        self.commit(step, self.write(step, parts), numbers)

    def begin(self, step: int) -> None:
        """Make the folder in which a checkpoint is written."""
        with self._complaining(step):
            self.sweep()
            self._part(step).mkdir(parents=True)

    def write(self, step: int, parts: Parts) -> dict[str, str]:
        """Write files of tensors; returns their SHA-256 sums."""
        with self._complaining(step):
            paths = [self._part(step) / f"{name}.safetensors" for name in parts]
            for path, tensors in zip(paths, parts.values(), strict=True):
                save_file(dict(tensors), path)
                sync(path)
            return {path.name: digest(path) for path in paths}

    def commit(self, step: int, sums: Mapping[str, str], numbers: Mapping[str, Any]) -> None:
        """Add the numbers and the sums of all files, and rename the folder into its place."""
        part = self._part(step)
        with self._complaining(step):
            state = part / "state.json"
            state.write_text(json.dumps(numbers, indent=1), "utf-8")
            manifest = json.dumps({**sums, state.name: digest(state)}, indent=1)
            (part / "manifest.json").write_text(manifest, "utf-8")
            for path in (state, part / "manifest.json", part):
                sync(path)
            if self.path(step).exists():
                self.path(step).rename(self.folder / f"{REPLACED}{self.path(step).name}")
            part.rename(self.path(step))
            sync(self.folder)
            self.sweep()
        for old in self.steps()[: -self.keep]:
            shutil.rmtree(self.path(old), ignore_errors=True)

    def listed(self, step: int, rank: int) -> Path:
        """Where a rank lists the sums of its shards, for the first rank."""
        return self._part(step) / f"rank-{rank}.json"

    def _part(self, step: int) -> Path:
        return self.folder / f"{WRITING}{self.path(step).name}"

    @contextmanager
    def _complaining(self, step: int) -> Iterator[None]:
        """Context manager: a checkpoint that cannot be written is removed; the error is a line."""
        try:
            yield
        except (OSError, SafetensorError) as error:
            shutil.rmtree(self._part(step), ignore_errors=True)
            last = self.steps()
            kept = f"; the one of step {last[-1]} is intact" if last else ""
            raise BertsmithError(
                f"{self.path(step)}: the checkpoint cannot be written ({cause(error)}){kept}"
            ) from error

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
            files = {SHARD.sub("", name) for name, _ in sums.items()}
            for name in {"state.json", "model.safetensors"} - files:
                raise ValueError(f"manifest.json does not list {name}")
            for name, expected in sums.items():
                if digest(folder / name) != expected:
                    raise BertsmithError(f"{folder / name}: damaged (its SHA-256 sum differs)")
            numbers = json.loads((folder / "state.json").read_text("utf-8"))
            tensors = {
                name.removesuffix(".safetensors"): _read_tensors(folder, name, sums)
                for name in files
                if name.endswith(".safetensors")
            }
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
