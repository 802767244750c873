"""torch.compile for training: one graph for batches of any lengths."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bertsmith.kernels import fits_entropy, summed_entropy
from bertsmith.model import Encoder
from bertsmith.model.attention import Attention, RotaryAttention
from bertsmith.model.block import PostNormBlock, PreNormBlock
from bertsmith.objectives import Objective

Score = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
PLAIN = (Attention, RotaryAttention)  # whose kernels on a GPU read there where sequences end


def compile_rows(module: nn.Module, whole: bool = True, captured: bool = False) -> None:
    """Compile what a pass spends its time in. The number of tokens should be the same in each.

    On a GPU all blocks of an encoder become one graph that the GPU replays by itself: small models
    wait for Python otherwise. Not `whole`: a graph for each block, since what holds the weights of
    blocks (FSDP) comes in between. `captured`: no graphs, since the step as a whole becomes one.
    Where attention must know lengths beforehand (on a CPU; where scores depend on distances), what
    comes before and after it.
    """
    mode = None if captured else "reduce-overhead"
    for part in module.modules():
        if isinstance(part, Encoder) and whole and _by_device(part):
            part.run = torch.compile(part.run, mode=mode)  # type: ignore[method-assign]
        elif isinstance(part, PostNormBlock | PreNormBlock) and not (whole and _by_device(part)):
            _compile_block(part)
        elif isinstance(part, Objective):
            part.place(next(module.parameters()).device)
            for model in part.outside:
                compile_rows(model, whole, captured)
            part.score = _score(torch.compile(part.score, dynamic=True))  # type: ignore[assignment]


def _score(compiled: Score) -> Score:
    """Losses by our own kernel where there is one."""

    def score(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return (summed_entropy if fits_entropy(logits) else compiled)(logits, targets)

    return score


def _compile_block(block: PostNormBlock | PreNormBlock) -> None:
    if _by_device(block):
        block.forward = torch.compile(block.forward)  # type: ignore[method-assign]
        return
    block.finish = torch.compile(block.finish, dynamic=False)  # type: ignore[method-assign]
    if isinstance(block.attention, RotaryAttention):
        turn = torch.compile(block.attention.place, dynamic=False)
        block.attention.place = turn  # type: ignore[method-assign]


def _by_device(module: nn.Module) -> bool:
    """Does attention find out on the device where sequences end?"""
    return _is_there(module) and reads_boundaries(module)


def reads_boundaries(module: nn.Module) -> bool:
    """Can a GPU in half precision attend without knowing lengths on the host?"""
    found = [part for part in module.modules() if isinstance(part, Attention)]
    widths = [part.output.in_features // part.heads for part in found]  # type: ignore[operator]
    plain = all(type(attention) in PLAIN for attention in found)
    return plain and all(width % 8 == 0 and width <= 256 for width in widths)


def _is_there(module: nn.Module) -> bool:
    return all(parameter.device.type == "cuda" for parameter in module.parameters())
