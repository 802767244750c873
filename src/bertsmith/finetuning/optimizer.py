"""The optimizer of a fine-tuning run: parameter groups by depth, for AdamW or Muon."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bertsmith.errors import BertsmithError
from bertsmith.finetuning.settings import Settings, matrix_rate_for
from bertsmith.model import Model
from bertsmith.train.optimizer import CompositeOptimizer, Muon, matrix_dtype


def optimizer_for(model: Model, settings: Settings, steps: int) -> CompositeOptimizer:
    """AdamW for all parameters, or Muon for the matrices of layers and AdamW for the rest."""
    rate, decay, slower = settings.learning_rate, settings.weight_decay, settings.layer_decay
    parameter_groups = groups(model, rate, decay, slower)
    if settings.optimizer == "adamw":
        return CompositeOptimizer([torch.optim.AdamW(parameter_groups, fused=True)])
    inner = [group for group in parameter_groups if group["inner"]]
    rest = [group for group in parameter_groups if not group["inner"]]
    for group in inner:
        group["lr"] *= (settings.matrix_learning_rate or matrix_rate_for(steps)) / rate
    optimizers: list[torch.optim.Optimizer] = [torch.optim.AdamW(rest, fused=True)] if rest else []
    if inner:
        optimizers.append(
            Muon(
                inner,
                momentum=0.95,
                nesterov=True,
                adjust_lr_fn="original",
                compute_dtype=matrix_dtype(next(model.parameters()).device),
            )
        )
    return CompositeOptimizer(optimizers)


def groups(
    model: Model, rate: float, weight_decay: float, layer_decay: float
) -> list[dict[str, Any]]:
    """Trained parameters in groups of one learning rate and weight decay.

    The head learns at the full rate, the top layer at `layer_decay` of it, and so on down to
    the embedding. Matrices decay; biases and norms do not. "inner" are matrices in layers.
    """
    depths = {number: depth for depth, (number, _) in enumerate(model.encoder.plan, 1)}
    top = len(model.encoder.plan) + 1
    members: dict[tuple[int, bool, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        words = name.split(".")
        depth, inner = top if words[0] == "heads" else 0, False
        if words[:2] == ["encoder", "blocks"]:
            depth, inner = depths[int(words[2])], parameter.ndim == 2
        elif words[:2] == ["encoder", "norm"]:
            depth = top - 1
        members.setdefault((depth, parameter.ndim > 1, inner), []).append(parameter)
    if not members:
        raise BertsmithError("every parameter is frozen: nothing can be trained")
    return [
        {
            "params": parameters,
            "lr": rate * layer_decay ** (top - depth),
            "weight_decay": weight_decay if matrices else 0.0,
            "inner": inner,
        }
        for (depth, matrices, inner), parameters in members.items()
    ]
