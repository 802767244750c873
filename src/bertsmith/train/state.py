"""Checkpoints of a run: written whole or not at all, checked when they are read."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertsmith.errors import BertsmithError

WRITING, REPLACED = ".writing-", ".replaced-"
Tensors = Mapping[str, Tensor]


class Saved(NamedTuple):
    """A checkpoint that was read."""

    numbers: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]]  # file → its tensors


class Checkpoints:
    """The checkpoints of a run, `step-00000500` and so on; the last few are kept."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep

    def steps(self) -> list[int]:
        """The steps of which there is a checkpoint, in order."""
        found = self.folder.glob("step-*") if self.folder.is_dir() else []
        return sorted(int(path.name[5:]) for path in found if path.name[5:].isdigit())

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
                flush(path)
            if self.path(step).exists():
                self.path(step).rename(self.folder / f"{REPLACED}{self.path(step).name}")
            part.rename(self.path(step))
            flush(self.folder)
            self.sweep()
        except (OSError, SafetensorError) as error:
            shutil.rmtree(part, ignore_errors=True)
            why = getattr(error, "strerror", None) or str(error)
            last = self.steps()
            kept = f"; the one of step {last[-1]} is whole" if last else ""
            raise BertsmithError(
                f"{self.path(step)}: the checkpoint cannot be written ({why}){kept}"
            ) from error
        for old in self.steps()[: -self.keep]:
            shutil.rmtree(self.path(old), ignore_errors=True)

    def sweep(self) -> None:
        """Remove what an interrupted writer left; what it had not replaced yet comes back."""
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
            for name, expected in sums.items():
                if digest(folder / name) != expected:
                    raise BertsmithError(f"{folder / name}: damaged (its SHA-256 sum differs)")
            numbers = json.loads((folder / "state.json").read_text("utf-8"))
            names = [name for name in sums if name.endswith(".safetensors")]
            tensors = {n.removesuffix(".safetensors"): load_file(folder / n) for n in names}
        except (OSError, ValueError, AttributeError, SafetensorError) as error:
            raise BertsmithError(f"{folder}: damaged ({error})") from error
        return Saved(numbers, tensors)

    def newest(self) -> tuple[Saved | None, list[str]]:
        """The newest whole checkpoint, and what is wrong with newer ones."""
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
        """Remove checkpoints of later steps, which a damaged file has made useless."""
        for later in self.steps():
            if later > step:
                shutil.rmtree(self.path(later), ignore_errors=True)


def digest(path: Path) -> str:
    """The SHA-256 sum of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def flush(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
