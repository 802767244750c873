"""Tensors in files, read without trust: no pickle is executed, no path leaves the directory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bertsmith.errors import BertsmithError

LARGEST_JSON = 64 * 2**20


def read_json(path: Path, kind: type = dict) -> Any:
    """A JSON object (or another kind) from a file; anything else is a one-line error."""
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise BertsmithError(f"{path}: larger than {LARGEST_JSON:,} bytes; this is no config")
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BertsmithError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise BertsmithError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(found, kind):
        raise BertsmithError(f"{path}: expected a JSON {kind.__name__}, not {type(found).__name__}")
    return found


def inside(directory: Path, name: Any) -> Path:
    """A file that a checkpoint names, if it lies in the checkpoint's own directory."""
    if not isinstance(name, str) or not name or "\0" in name or Path(name).name != name:
        raise BertsmithError(f"{directory}: names a file outside its directory: {name!r}")
    path = directory / name
    if not path.is_file():
        raise BertsmithError(f"{directory}: {name} is missing")
    return path


class TensorFiles:
    """The tensors of a checkpoint, named and shaped, each read when asked for."""

    def __init__(self, directory: Path) -> None:
        self.where: dict[str, Path] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.open: dict[Path, Any] = {}
        for path, names in _weight_files(directory).items():
            with _readable(path):
                self._index(path, names)
        if not self.where:
            raise BertsmithError(f"{directory}: the weights file holds no tensors")

    def _index(self, path: Path, wanted: list[str] | None) -> None:
        source: Any
        if path.suffix == ".safetensors":
            source = safe_open(path, framework="pt")
            names = list(source.keys())
            shapes = {name: tuple(source.get_slice(name).get_shape()) for name in names}
        else:
            source = _load_pickle(path)
            shapes = {name: tuple(tensor.shape) for name, tensor in source.items()}
        for name in shapes if wanted is None else wanted:
            if name not in shapes:
                raise BertsmithError(f"{path}: the index lists {name}, which is not there")
            self.where[name], self.shapes[name] = path, shapes[name]
        self.open[path] = source

    def read(self, name: str) -> Tensor:
        """One tensor, on the CPU, in the dtype it is stored in."""
        path = self.where[name]
        source = self.open[path]
        with _readable(path):
            found = source[name] if isinstance(source, Mapping) else source.get_tensor(name)
        if not (found.is_floating_point() or found.dtype == torch.int64):
            raise BertsmithError(
                f"{path}: {name} is stored as {found.dtype}, which is not supported"
            )
        return found


def _weight_files(directory: Path) -> dict[Path, list[str] | None]:
    """The files that hold the weights, and which tensors to take from each (None: all)."""
    for whole in ("model.safetensors", "pytorch_model.bin"):
        if (directory / whole).is_file():
            return {directory / whole: None}
        index = directory / f"{whole}.index.json"
        if index.is_file():
            listed = read_json(index).get("weight_map")
            if not isinstance(listed, dict) or not listed:
                raise BertsmithError(f"{index}: has no weight_map")
            found: dict[Path, list[str] | None] = {}
            for name, file in listed.items():
                names = found.setdefault(inside(directory, file), [])
                assert names is not None
                names.append(name)
            return found
    raise BertsmithError(f"{directory}: no model.safetensors or pytorch_model.bin here")


def _load_pickle(path: Path) -> dict[str, Tensor]:
    """A pytorch_model.bin through the loader that accepts tensors and nothing else."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError:  # files from before torch 1.6 cannot be mapped
        found = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(found, dict):
        raise BertsmithError(f"{path}: holds {type(found).__name__}, not named tensors")
    return {str(k): v for k, v in found.items() if isinstance(v, Tensor)}


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Whatever a bad weights file raises becomes one line."""
    try:
        yield
    except BertsmithError:
        raise
    except OSError as error:
        raise BertsmithError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (SafetensorError, Exception) as error:
        reason = " ".join(str(error).split())[:200]
        raise BertsmithError(f"{path}: damaged or not a weights file ({reason})") from error
