"""torch.compile for training: one graph for batches of any lengths."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith.errors import BertsmithError
from bertsmith.kernels import fits_entropy, is_ampere, is_hopper, runs_relative, summed_entropy
from bertsmith.kernels.float8 import ALIGNED
from bertsmith.model import Encoder
from bertsmith.model.attention import (
    Attention,
    DisentangledAttention,
    RotaryAttention,
    SharedDisentangledAttention,
)
from bertsmith.model.block import PostNormBlock, PreNormBlock
from bertsmith.model.embedding import Embedding
from bertsmith.objectives import Objective
from bertsmith.train.activations import blocks_of

Score = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
PLAIN = (Attention, RotaryAttention)
RELATIVE = (DisentangledAttention, SharedDisentangledAttention)


def compile_rows(
    module: nn.Module,
    whole: bool = True,
    captured: bool = False,
    half: bool = True,
    float8: bool = False,
) -> None:
    """Compile the encoder for training. All passes should have the same number of tokens.

    On a GPU all blocks of an encoder become one CUDA graph, since small models wait for Python
    otherwise. The embedding is compiled after its tables: compiled gradients of a table would vary
    from run to run. If not `whole`, each block is compiled by itself, since FSDP gathers weights
    between blocks. If `captured`, no graphs are made, since the whole step becomes one.
    If attention needs the lengths on the host (on a CPU, or if not `half`: in float32), the parts
    before and after it are compiled. `float8`: matrix multiplications by weights are in FP8.
    """
    from bertsmith.kernels.graphs import FuseSums
    from bertsmith.kernels.products import MultiplyInFloat8

    # Asked by attention inside the graph. A decorator would import the compiler with the package.
    for ask in (is_ampere, is_hopper):
        torch.compiler.assume_constant_result(ask)
    options: dict[str, Any] = {"triton.cudagraphs": not captured}
    options["post_grad_custom_pre_pass"] = FuseSums()
    if float8:
        _demand_aligned(module)
        options["joint_custom_pre_pass"] = MultiplyInFloat8()
    for part in module.modules():
        if isinstance(part, Embedding) and whole and _is_there(part):
            part.combine = torch.compile(part.combine)  # type: ignore[method-assign]
        elif isinstance(part, Encoder) and whole and _by_device(part, half):
            part.run = torch.compile(part.run, options=options)  # type: ignore[method-assign]
        elif isinstance(part, PostNormBlock | PreNormBlock):
            if not (whole and _by_device(part, half)):
                _compile_block(part, half, options)
        elif isinstance(part, Objective):
            part.place(next(module.parameters()).device)
            for model in part.outside:
                compile_rows(model, whole, captured, half, float8)
            part.score = _score(torch.compile(part.score, dynamic=True))  # type: ignore[assignment]


def _demand_aligned(module: nn.Module) -> None:
    """Refuse blocks that FP8 cannot multiply, since the pass over graphs would leave them out."""
    parts = (part for block in blocks_of(module) for part in block.modules())
    for layer in (part for part in parts if isinstance(part, nn.Linear)):
        if layer.in_features % ALIGNED or layer.out_features % ALIGNED:
            sizes = f"{layer.in_features} x {layer.out_features}"
            needed = f"layers whose sizes are multiples of {ALIGNED}, not {sizes}"
            raise BertsmithError(f'fp8 needs {needed}: use train.precision = "bfloat16"')


def _score(compiled: Score) -> Score:
    """Compute losses with the Triton kernel if it supports the inputs."""

    def score(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return (summed_entropy if fits_entropy(logits) else compiled)(logits, targets)

    return score


def _compile_block(
    block: PostNormBlock | PreNormBlock, half: bool, options: dict[str, Any]
) -> None:
    if _by_device(block, half):
        passes = {key: value for key, value in options.items() if key.startswith("joint")}
        block.forward = torch.compile(block.forward, options=passes)  # type: ignore[method-assign]
        return
    block.finish = torch.compile(block.finish, dynamic=False)  # type: ignore[method-assign]
    if isinstance(block.attention, RotaryAttention):
        turn = torch.compile(block.attention.place, dynamic=False)
        block.attention.place = turn  # type: ignore[method-assign]


def _by_device(module: nn.Module, half: bool) -> bool:
    """Return whether attention reads the sequence boundaries on the device."""
    return _is_there(module) and reads_boundaries(module, half)


def reads_boundaries(module: nn.Module, half: bool = True) -> bool:
    """Return whether a GPU can attend without lengths on the host, in half precision or not."""
    parts = [part for part in module.modules() if isinstance(part, Attention)]
    devices = {parameter.device for parameter in module.parameters()}
    # Before Ampere, attention in float16 is by groups of like length.
    early = any(device.type == "cuda" and not is_ampere(device) for device in devices)
    return half and not early and all(map(_reads_boundaries, parts))


def _reads_boundaries(attention: Attention) -> bool:
    width: int = attention.output.in_features // attention.heads  # type: ignore[operator,assignment]
    if type(attention) in RELATIVE:
        return runs_relative(width, next(attention.parameters()).device)
    return type(attention) in PLAIN and width % 8 == 0 and width <= 256


def _is_there(module: nn.Module) -> bool:
    return all(parameter.device.type == "cuda" for parameter in module.parameters())
