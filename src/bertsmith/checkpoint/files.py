"""Tensor files, read safely: nothing is executed, no path leaves the directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from bertsmith.checkpoint.pickles import PickledTensors
from bertsmith.errors import BertsmithError
from bertsmith.files import cause, one_line
from bertsmith.foreign import read_json
from bertsmith.kernels import dequantize_weight

MOST_TENSORS = 100_000
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
# A weight may be stored as int8 values and scales of its rows. Under its plain name no library
# would read the values without their scales.
INT8, SCALE = ".int8", ".scale"
DAMAGED = "damaged; quantize the float32 model again"


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
        self.open: dict[Path, SafeTensors | PickledTensors] = {}
        self.notes: list[str] = []
        self.int8: set[str] = set()  # weights that are stored as int8 values with scales
        for path, listed in _weight_files(directory).items():
            with readable(path):
                self._index(path, listed)
        if not self.where:
            raise BertsmithError(f"{directory}: the weights file holds no tensors")
        self._pair_scales()

    def _pair_scales(self) -> None:
        """Give int8 values and their scales the name of the weight that they are together."""
        for name in [name for name in self.where if name.endswith(INT8)]:
            weight = name.removesuffix(INT8)
            path, shape = self.where.pop(name), self.shapes.pop(name)
            rows, blocks, *more = (*self.shapes.pop(weight + SCALE, (0,)), 1)
            if len(shape) != 2 or rows != shape[0] or more > [1] or not blocks or shape[1] % blocks:
                fault = f"{name} has no scales that fit its shape {shape}"
                raise BertsmithError(f"{path}: {fault}: {DAMAGED}")
            del self.where[weight + SCALE]
            self.where[weight], self.shapes[weight] = path, shape
            self.int8.add(weight)

    def _index(self, path: Path, listed: set[str]) -> None:
        with path.open("rb") as file:
            if file.read(40).startswith(b"version https://git-lfs."):
                advice = "fetch them with `git lfs pull`"
                raise BertsmithError(f"{path}: a Git LFS pointer, not the weights; {advice}")
        source = (SafeTensors if path.suffix == ".safetensors" else PickledTensors)(path)
        names = source.names()
        self.notes += source.notes
        if len(names) > MOST_TENSORS:
            raise BertsmithError(f"{path}: holds {len(names):,} tensors, too many for a model")
        for name in listed.difference(names):
            raise BertsmithError(f"{path}: the index lists {name!r}, which is missing")
        self.open[path] = source
        for name in names:
            if name in listed or name not in self.where:  # of two with one name the listed one
                self.where[name], self.shapes[name] = path, source.shape(name)

    def read(self, name: str) -> Tensor:
        """One tensor, on the CPU, in the dtype it is stored in; int8 with its scales is float32."""
        path = self.where[name]
        if name in self.int8:
            return self._scaled(name, path)
        with readable(path):
            tensor = self.open[path].get(name)
        if tensor.dtype not in FLOATS:
            kind = f"{tensor.dtype}, which is not supported"
            raise BertsmithError(f"{path}: {name} is stored as {kind}")
        return tensor

    def _scaled(self, name: str, path: Path) -> Tensor:
        with readable(path):
            values, scale = (self.open[path].get(name + part) for part in (INT8, SCALE))
        positive = bool((scale.float() > 0).all() & scale.isfinite().all())
        if values.dtype != torch.int8 or not positive:
            raise BertsmithError(
                f"{path}: the scales of {name} are not all positive numbers: {DAMAGED}"
            )
        return dequantize_weight(values, scale)


class SafeTensors:
    """Named tensors in a safetensors file."""

    notes = ()

    def __init__(self, path: Path) -> None:
        # Read, not mapped: the model must not change, or fall, when the file does.
        self.file: Any = safe_open(path, framework="pt", backend="pread")

    def names(self) -> list[str]:
        """The names of all tensors."""
        return self.file.offset_keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, which is not read for it."""
        return tuple(self.file.get_slice(name).get_shape())

    def get(self, name: str) -> Tensor:
        """Read a tensor from the file."""
        return self.file.get_tensor(name)


def _weight_files(directory: Path) -> dict[Path, set[str]]:
    """The files that hold the weights, and which tensors an index says are in each."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        index = directory / f"{name}.index.json"
        with readable(directory):
            if (directory / name).is_file():
                return {directory / name: set()}
            if not index.is_file():
                continue
        listed = read_json(index).get("weight_map")
        if not isinstance(listed, dict) or not listed:
            raise BertsmithError(f"{index}: has no weight_map")
        files: dict[Path, set[str]] = {}
        for file in {str(file): file for file in listed.values()}.values():
            files[inside(directory, file)] = {name for name in listed if listed[name] == file}
        return files
    other = _other_weights(directory)
    raise BertsmithError(f"{directory}: no model.safetensors or pytorch_model.bin here{other}")


def _other_weights(directory: Path) -> str:
    """The end of an error: weights in a format that is not read, if there are any."""
    with readable(directory):
        names = sorted(path.name for path in directory.iterdir())
    for ending, kind in OTHER_WEIGHTS.items():
        if others := [name for name in names if name.endswith(ending)]:
            return f"; {one_line(others[0])} holds {kind}, which bertsmith does not read"
    if (directory / "onnx").is_dir():
        return "; onnx/ holds an ONNX model, which bertsmith does not read"
    return ""


OTHER_WEIGHTS = {
    ".onnx": "an ONNX model",
    ".h5": "weights of TensorFlow",
    ".msgpack": "weights of Flax",
    ".ckpt.index": "weights of TensorFlow 1",
    ".gguf": "weights of llama.cpp",
    ".ckpt": "a training checkpoint",
    ".pt": "a file of torch.save",
    ".pth": "a file of torch.save",
}


@contextmanager
def readable(path: Path, fault: str = "damaged or not a weights file") -> Iterator[None]:
    """Turn whatever a bad file raises into one line."""
    try:
        yield
    except BertsmithError:
        raise
    except OSError as error:
        raise BertsmithError(f"{path}: cannot be read ({cause(error)})") from error
    except Exception as error:  # a hostile file may raise anything
        raise BertsmithError(f"{path}: {fault} ({one_line(error)})") from error
