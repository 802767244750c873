"""Tensors in files, read without trust: no pickle is executed, no path leaves the directory."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from bertsmith.errors import BertsmithError
from bertsmith.files import cause, one_line
from bertsmith.foreign import read_json

MOST_TENSORS = 100_000
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def inside(directory: Path, name: Any) -> Path:
    """A file that a checkpoint names, if it lies in the checkpoint's own directory."""
    if not isinstance(name, str) or not name or "\0" in name or Path(name).name != name:
        raise BertsmithError(f"{directory}: names a file outside its directory: {one_line(name)!r}")
    with readable(directory):
        if (directory / name).is_file():
            return directory / name
        fault = f"{one_line(name)!r} is missing" if directory.is_dir() else "no such directory"
    raise BertsmithError(f"{directory}: {fault}")


class TensorFiles:
    """The tensors of a checkpoint, named and shaped, each read when asked for."""

    def __init__(self, directory: Path) -> None:
        self.where: dict[str, Path] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.open: dict[Path, Any] = {}
        for path, listed in _weight_files(directory).items():
            with readable(path):
                self._index(path, listed)
        if not self.where:
            raise BertsmithError(f"{directory}: the weights file holds no tensors")

    def _index(self, path: Path, listed: set[str]) -> None:
        source: Any
        if path.suffix == ".safetensors":
            # Read, not mapped: the model must not change, or fall, when the file does.
            source = safe_open(path, framework="pt", backend="pread")
            names = source.offset_keys()
        else:
            source = _load_pickle(path)
            names = list(source)
        if len(names) > MOST_TENSORS:
            raise BertsmithError(f"{path}: holds {len(names):,} tensors; this is no model")
        for name in listed.difference(names):
            raise BertsmithError(f"{path}: the index lists {name!r}, which is not there")
        self.open[path] = source
        for name in names:
            if name in listed or name not in self.where:  # of two with one name the listed one
                self.where[name], self.shapes[name] = path, _shape(source, name)

    def read(self, name: str) -> Tensor:
        """One tensor, on the CPU, in the dtype it is stored in."""
        path = self.where[name]
        source = self.open[path]
        with readable(path):
            mapped = isinstance(source, Mapping)
            found: Tensor = source[name].clone() if mapped else source.get_tensor(name)
        if found.dtype not in FLOATS:
            raise BertsmithError(
                f"{path}: {name} is stored as {found.dtype}, which is not supported"
            )
        return found


def _shape(source: Any, name: str) -> tuple[int, ...]:
    """The shape of a tensor that is still in its file."""
    if isinstance(source, Mapping):
        return tuple(source[name].shape)
    return tuple(source.get_slice(name).get_shape())


def _weight_files(directory: Path) -> dict[Path, set[str]]:
    """The files that hold the weights, and which tensors an index says are in each."""
    for whole in ("model.safetensors", "pytorch_model.bin"):
        index = directory / f"{whole}.index.json"
        with readable(directory):
            if (directory / whole).is_file():
                return {directory / whole: set()}
            if not index.is_file():
                continue
        listed = read_json(index).get("weight_map")
        if not isinstance(listed, dict) or not listed:
            raise BertsmithError(f"{index}: has no weight_map")
        found: dict[Path, set[str]] = {}
        for file in {str(file): file for file in listed.values()}.values():
            found[inside(directory, file)] = {name for name in listed if listed[name] == file}
        return found
    raise BertsmithError(f"{directory}: no model.safetensors or pytorch_model.bin here")


def _load_pickle(path: Path) -> dict[str, Tensor]:
    """A pytorch_model.bin through the loader that accepts tensors and nothing else."""
    packed = zipfile.is_zipfile(path)  # from torch 1.6 on; older files cannot be mapped
    if packed:
        with zipfile.ZipFile(path) as archive:
            if any(entry.compress_type for entry in archive.infolist()):
                raise BertsmithError(f"{path}: is compressed, which no weights file is")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=packed)
    except OSError:
        raise
    except Exception as error:  # a hostile file may raise anything
        raise BertsmithError(f"{path}: damaged, or a pickle of more than tensors") from error
    if not isinstance(found, dict):
        raise BertsmithError(f"{path}: holds {type(found).__name__}, not named tensors")
    tensors = {str(name): value for name, value in found.items() if isinstance(value, Tensor)}
    for name, value in tensors.items():
        if value.device.type != "cpu" or value.layout != torch.strided:
            raise BertsmithError(f"{path}: {name!r} is no plain tensor")
    # Tied tensors are stored once and named twice; a file that claims far more is an attack.
    if sum(value.nbytes for value in tensors.values()) > 4 * path.stat().st_size:
        raise BertsmithError(f"{path}: its tensors claim to be larger than the file")
    return {name: value.detach() for name, value in tensors.items()}


@contextmanager
def readable(path: Path, fault: str = "damaged or not a weights file") -> Iterator[None]:
    """Whatever a bad file raises becomes one line."""
    try:
        yield
    except BertsmithError:
        raise
    except OSError as error:
        raise BertsmithError(f"{path}: cannot be read ({cause(error)})") from error
    except Exception as error:  # a hostile file may raise anything
        raise BertsmithError(f"{path}: {fault} ({one_line(error)})") from error
