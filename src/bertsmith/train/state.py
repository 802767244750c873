"""The state of a run and its checkpoints: written by a thread, atomically; verified when read."""

import json
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertsmith.errors import BertsmithError
from bertsmith.files import cause, digest, sync, write_json
from bertsmith.train.distributed import Ranks, assign, is_sharded, shards_of
from bertsmith.train.optimizer import CompositeOptimizer, local_shard
from bertsmith.train.weights import Averages, Best

WRITING, REPLACED = ".writing-", ".replaced-"
POLL = 0.05  # seconds between two looks for the shards of other ranks
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
    def of(cls, numbers: Mapping[str, Any]) -> Self:
        """Read the numbers of a checkpoint; older ones call the record `sums`."""
        return cls(**{"record" if key == "sums" else key: n for key, n in numbers.items()})


class Saved(NamedTuple):
    """A loaded checkpoint."""

    numbers: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]]  # file → its tensors


@dataclass
class TensorState:
    """The tensors of a run: weights, optimizer states, averages, the best weights."""

    named: Mapping[str, nn.Parameter]
    optimizer: CompositeOptimizer
    averages: Averages
    best: Best

    def __post_init__(self) -> None:
        self.names = {parameter: name for name, parameter in self.named.items()}
        self.shards = shards_of(self.named.values())

    def copied(self, ranks: Ranks) -> Parts:
        """Copies in CPU memory: this rank's shards, and on the first rank what is not sharded."""
        states = {
            f"{self.names[parameter]}:{key}": torch.as_tensor(value)
            for parameter, state in self.optimizer.states()
            for key, value in state.items()
        }
        files: dict[str, Tensors] = {"model": self.named, "optimizer": states}
        files |= {"average": self.averages.values, "best": self.best.weights}
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
        for optimizer in self.optimizer.optimizers:
            for group in optimizer.param_groups:
                # Others read the step count on the CPU: on a GPU each read would wait for it.
                on_device = bool(group.get("fused") or group.get("capturable"))
                for parameter in group["params"]:
                    values = stored.get(self.names[parameter], {})
                    optimizer.state[parameter] = {
                        key: _placed(value, parameter, on_device) for key, value in values.items()
                    }


def _placed(value: Tensor, parameter: nn.Parameter, on_device: bool) -> Tensor:
    """A value of an optimizer's state: a number, or a tensor that is laid out like a parameter."""
    if value.ndim == 0:
        return value.to(parameter.device) if on_device else value
    state = torch.zeros_like(parameter)
    assign(state, value)
    return state


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
    """The last few checkpoints of a run, `step-00000500` and so on; sharded tensors in shards."""

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
            sums = {}
            for name, tensors in parts.items():
                path = self._part(step) / f"{name}.safetensors"
                save_file(dict(tensors), path)
                sync(path)
                sums[path.name] = digest(path)
            return sums

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
            fault = f"the checkpoint cannot be written ({cause(error)}){kept}"
            raise BertsmithError(f"{self.path(step)}: {fault}") from error

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
            stored = {name.removesuffix(".safetensors"): name for name in files - {"state.json"}}
            tensors = {name: _read_tensors(folder, file, sums) for name, file in stored.items()}
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


class BackgroundWriter:
    """Writes the checkpoints of a run, one at a time.

    `start` copies the tensors and returns; a thread of each rank writes its shards, and the first
    rank's thread completes the checkpoint when all shards are there. So it is whole or not there,
    whenever the processes end. An error is raised by the next `settle`.
    """

    def __init__(self, checkpoints: Checkpoints, state: TensorState, ranks: Ranks) -> None:
        self.checkpoints, self.state, self.ranks = checkpoints, state, ranks
        self.thread: Thread | None = None
        self.fault: Exception | None = None
        self.given_up = Event()  # another rank's shards will not come
        self.took = 0.0  # seconds that the last checkpoint took to write

    def start(self, step: int, numbers: Mapping[str, Any]) -> None:
        """Copy the tensors as they are now, and write them in the background; on all ranks."""
        self.settle()
        self.ranks.run_on_first(lambda: self.checkpoints.begin(step))
        parts = self.state.copied(self.ranks)
        on_gpu = self.ranks.device.type == "cuda"
        copied = torch.cuda.current_stream(self.ranks.device).record_event() if on_gpu else None

        def write() -> None:
            began = time.monotonic()
            try:
                if copied is not None:
                    copied.synchronize()
                self._write(step, parts, numbers)
            except Exception as error:  # noqa: BLE001 - the main thread raises it
                self.fault = error
            self.took = time.monotonic() - began

        if parts:
            self.thread = Thread(target=write, name="checkpoint", daemon=True)
            self.thread.start()

    def settle(self) -> None:
        """Wait until the last checkpoint is written; an error of any rank is raised on all."""
        faults: list[str] = []
        if self.state.shards > 1:
            own = None if self.ranks.first else self._joined()
            faults = [fault for fault in self.ranks.collect(own and str(own)) if fault]

        def end() -> None:
            if faults:
                self.given_up.set()
            fault = self._joined()
            if faults:
                raise BertsmithError(faults[0])
            if fault is not None:
                raise fault

        self.ranks.run_on_first(end)

    def save_alone(self, step: int, numbers: Mapping[str, Any]) -> None:
        """Write a checkpoint at once, without the other ranks."""
        self._joined()
        self.checkpoints.save(step, self.state.copied(self.ranks), numbers)

    def _joined(self) -> Exception | None:
        """Wait for the own thread; returns its error."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None
        fault, self.fault = self.fault, None
        return fault

    def _write(self, step: int, parts: Any, numbers: Mapping[str, Any]) -> None:
        sums = self.checkpoints.write(step, parts)
        if not self.ranks.first:
            write_json(self.checkpoints.listed(step, self.ranks.rank), sums)
            return
        for rank in range(1, self.state.shards):
            listed = self.checkpoints.listed(step, rank)
            while not listed.exists():
                if self.given_up.wait(POLL):
                    raise BertsmithError(f"{listed}: not written by its rank")
            sums |= json.loads(listed.read_text("utf-8"))
            listed.unlink()
        self.checkpoints.commit(step, sums, numbers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Wait for the own thread: nothing is written once the run is left."""
        if error is not None:
            self.given_up.set()
        self._joined()
