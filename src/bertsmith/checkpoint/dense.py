"""Dense modules of sentence-transformers: a linear layer and an activation after the pooling."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F

from bertsmith.checkpoint.files import TensorFiles
from bertsmith.errors import BertsmithError
from bertsmith.files import make_folder, write_bytes, write_json
from bertsmith.foreign import read_json

LARGEST = 1 << 20  # bytes of config.json
TANH = "torch.nn.modules.activation.Tanh"  # the default
IDENTITY = "torch.nn.modules.linear.Identity"
# By the names in config.json.
ACTIVATIONS: dict[str, Any] = {
    IDENTITY: nn.Identity(),
    TANH: torch.tanh,
    "torch.nn.modules.activation.ReLU": F.relu,
    "torch.nn.modules.activation.GELU": F.gelu,
    "torch.nn.modules.activation.SiLU": F.silu,
    "torch.nn.modules.activation.Sigmoid": torch.sigmoid,
}
VECTORS = "sentence_embedding"  # what the module reads and writes; others work on tokens


@dataclass(frozen=True, eq=False)
class Dense:
    """A Dense module: vectors (N, D) → activation(x @ weight.T + bias) (N, E)."""

    weight: Tensor  # (E, D)
    bias: Tensor | None
    activation: str = TANH

    def __call__(self, x: Tensor) -> Tensor:
        """Project vectors (N, D) → (N, E)."""
        bias = None if self.bias is None else self.bias.to(x)
        return ACTIVATIONS[self.activation](F.linear(x, self.weight.to(x), bias))


def read_dense(directory: Path) -> Dense:
    """Read a Dense module from its folder."""
    path = directory / "config.json"
    settings = read_json(path, limit=LARGEST)
    kind = settings.get("activation_function", TANH)
    if not isinstance(kind, str) or kind not in ACTIVATIONS:
        known = ", ".join(name.rpartition(".")[2] for name in ACTIVATIONS)
        raise BertsmithError(f"{path}: the activation {kind!r:.100} is not known; known: {known}")
    sides = settings.get("module_input_name"), settings.get("module_output_name")
    if settings.get("use_residual") or not {*sides} <= {None, VECTORS}:
        raise BertsmithError(f"{path}: Dense with a residual, or on tokens, is not supported")
    files = TensorFiles(directory)
    names = ["linear.weight", *(["linear.bias"] if settings.get("bias", True) is True else [])]
    if missing := [name for name in names if name not in files.where]:
        raise BertsmithError(f"{directory}: has no tensor {missing[0]}")
    tensors = [files.read(name).float() for name in names]
    shape = settings.get("out_features"), settings.get("in_features")
    if [tuple(tensor.shape) for tensor in tensors] != [shape, shape[:1]][: len(tensors)]:
        raise BertsmithError(f"{directory}: its weights do not have the shape {shape} of {path}")
    if not all(tensor.isfinite().all() for tensor in tensors):
        raise BertsmithError(f"{directory}: its weights have values that are not numbers")
    return Dense(tensors[0], tensors[1] if len(tensors) > 1 else None, kind)


def write_dense(directory: Path, dense: Dense) -> None:
    """Write a Dense module as sentence-transformers does."""
    make_folder(directory)
    tensors = {"linear.weight": dense.weight}
    tensors |= {} if dense.bias is None else {"linear.bias": dense.bias}
    narrow, wide = dense.weight.shape
    settings = {"in_features": wide, "out_features": narrow, "bias": dense.bias is not None}
    write_json(directory / "config.json", {**settings, "activation_function": dense.activation})
    write_bytes(directory / "model.safetensors", save(tensors, metadata={"format": "pt"}))
