"""torch.compile for what no row shares with another: one graph, whatever lengths a batch has."""

from __future__ import annotations

import torch
from torch import nn

from bertsmith.model.attention import RotaryAttention
from bertsmith.model.block import PostNormBlock, PreNormBlock
from bertsmith.objectives import Objective


def compile_rows(module: nn.Module) -> None:
    """Compile all of each block that comes after attention, what turns queries and keys, losses.

    Attention itself reads how long each sequence is, which no graph should depend on. The number
    of tokens should be the same in every batch, or there is a graph for each.
    """
    for part in module.modules():
        if isinstance(part, PostNormBlock | PreNormBlock):
            part.finish = torch.compile(part.finish, dynamic=False)  # type: ignore[method-assign]
        if isinstance(part, Objective):
            part.score = torch.compile(part.score, dynamic=True)
        if isinstance(part, RotaryAttention):
            part.place = torch.compile(part.place, dynamic=False)  # type: ignore[method-assign]
