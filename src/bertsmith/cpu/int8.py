"""Linear layers and tables in int8, for inference on a CPU."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith.batch import Batch
from bertsmith.cpu.packed import RepackedLinear
from bertsmith.errors import BertsmithError
from bertsmith.kernels import dequantize_weight, int8_engine, int8_linear, quantize_weight
from bertsmith.model.attention import QueryValueLinear
from bertsmith.model.encoder import Model

EVEN = 0.065  # of the size of a typical row: rounding errors that are too small to matter
BLOCK = 64  # columns of a table that share a scale, if its width is a multiple of this
MANY = 1024  # outputs from which a head's last layer is worth quantizing: a vocabulary


class Int8Linear(RepackedLinear):
    """A linear layer that multiplies in int8 in inference mode.

    The weight is rounded to int8 values times a scale for each output. Its int8 copy is made when
    it is first used, and again if the weight changes.
    """

    plain: type[nn.Linear]  # the class it was before
    even: bool = False  # rows are so alike that those of a batch can share a scale

    def forward(self, x: Tensor) -> Tensor:
        """(T, in) → (T, out)."""
        usable = x.dtype == self.weight.dtype == torch.float32 and x.device.type == "cpu"
        if not (usable and torch.is_inference_mode_enabled()):
            return self.plain.forward(self, x)
        if not self.is_fresh:
            self.pack()
        return int8_linear(x, *self.packed)

    def pack(self) -> None:
        """Make the int8 copy."""
        engine = int8_engine().engine
        values, scale = quantize_weight(self.weight.detach())
        bias = self.joint_bias() if isinstance(self, QueryValueLinear) else self.bias
        self.packed = engine, engine.pack(values), scale, bias
        self.packed_version = self.version


class Int8QueryValueLinear(Int8Linear, QueryValueLinear):
    """The same for a joint query, key, value map in which keys have no bias."""


class Int8Table(nn.Embedding):
    """A table whose rows are int8 values times scales: one for each block of columns.

    Rows of tables often have a few large values; one scale would round the others to zero.
    """


CLASSES = {
    nn.Linear: Int8Linear,
    QueryValueLinear: Int8QueryValueLinear,
    nn.Embedding: Int8Table,
}


def int8_candidates(model: Model) -> Iterator[tuple[str, Any]]:
    """The table of tokens and the linear layers that can be int8, with their paths.

    Heads of few outputs are not among them: they cost little, and their values are the result.
    """
    yield "encoder.embedding.token", model.encoder.embedding.token
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear) and (
            path.startswith("encoder.")
            or (path.endswith(".output") and module.out_features >= MANY)
        ):
            yield path, module


@torch.no_grad()
def quantize(model: Model, keep: Container[str] = (), even: Container[str] = ()) -> None:
    """Round weights to int8 and compute with them in int8, except in the modules to `keep`."""
    if next(model.parameters()).device.type != "cpu":
        raise BertsmithError("int8 is for CPUs; on a GPU use bfloat16")
    table: Any = model.encoder.embedding.token
    for path, module in int8_candidates(model):
        if path in keep or type(module) not in CLASSES:
            continue
        plain, weight = type(module), module.weight
        if plain is nn.Embedding or weight is not table.weight:  # a tied head has its rounding
            weight.copy_(dequantize_weight(*quantize_weight(weight, blocks(module))))
        module.__class__ = CLASSES[plain]
        module.plain, module.even = plain, path in even


@torch.inference_mode()
def even_layers(model: Model, sample: Batch) -> set[str]:
    """The layers whose inputs lose little if all tokens share a scale."""
    noise: dict[str, float] = {}

    def measured(path: str) -> Any:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            low, high = inputs[0].aminmax()
            step = (high - low) / 255
            noise[path] = float(step / inputs[0].square().mean(1).median().sqrt()) / 12**0.5

        return hook

    hooks = [
        layer.register_forward_pre_hook(measured(path))
        for path, layer in int8_candidates(model)
        if isinstance(layer, nn.Linear)
    ]
    try:
        model.encoder(sample)
    finally:
        for hook in hooks:
            hook.remove()
    return {path for path, amount in noise.items() if amount <= EVEN}


def blocks(module: nn.Module) -> int:
    """How many scales a row of its weight has."""
    assert isinstance(module.weight, Tensor)
    width = module.weight.shape[1]
    return width // BLOCK if isinstance(module, nn.Embedding) and not width % BLOCK else 1


def int8_weights(model: nn.Module) -> dict[str, int]:
    """The names of all weights that are int8 values times scales, and the scales in a row."""
    return {
        f"{path}.weight": blocks(module)
        for path, module in model.named_modules()
        if isinstance(module, Int8Linear | Int8Table)
    }
