"""What is done to a model before it learns: freezing, forgetting, saving memory, its optimizer."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from bertsmith.errors import BertsmithError
from bertsmith.finetune.settings import Settings, matrix_rate_for
from bertsmith.model import Config, Model, initialise
from bertsmith.train.optimizer import CompositeOptimizer, Muon, matrix_dtype


def freeze(model: Model, asked: str) -> None:
    """Let the embedding, the lower layers or the whole encoder stay as they are."""
    if asked == "none":
        return
    encoder = model.encoder
    frozen: list[nn.Module] = [encoder.embedding]
    if asked == "encoder":
        frozen = [encoder]
    elif asked != "embedding":
        depth = len(encoder.plan)
        if int(asked) > depth:
            raise BertsmithError(f"{asked} layers cannot be frozen: the model has {depth}")
        lower = {number for number, _ in encoder.plan[: int(asked)]}
        if lower & {number for number, _ in encoder.plan[int(asked) :]}:
            raise BertsmithError("the layers of this model share their weights: freeze encoder")
        frozen += [encoder.blocks[number] for number in sorted(lower)]
    for module in frozen:
        module.requires_grad_(False)


def reinitialise(model: Model, config: Config, count: int, seed: int) -> None:
    """Give the top layers new weights."""
    if not count:
        return
    plan = [number for number, _ in model.encoder.plan]
    if count > len(plan):
        raise BertsmithError(f"{count} layers cannot be reinitialised: the model has {len(plan)}")
    top = set(plan[len(plan) - count :])
    if top & set(plan[: len(plan) - count]):
        raise BertsmithError("the layers of this model share their weights: none can be new alone")
    prefixes = tuple(f"encoder.blocks.{number}." for number in top)
    names = {name for name, _ in model.named_parameters() if name.startswith(prefixes)}
    device = next(model.parameters()).device
    generator = torch.Generator(device=device).manual_seed(seed)
    initialise(model, config.initial_deviation, generator, only=names)


def keep_few_states(model: Model) -> None:
    """Let each block compute its states again in the backward pass instead of keeping them."""
    for block in model.encoder.blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def keep_all_states(model: Model) -> None:
    """Undo `keep_few_states`."""
    for block in model.encoder.blocks:
        block.__dict__.pop("forward", None)


def optimizer_for(model: Model, settings: Settings, steps: int) -> CompositeOptimizer:
    """AdamW for all that learns, or Muon for the matrices in layers and AdamW for the rest."""
    rate, decay, slower = settings.learning_rate, settings.weight_decay, settings.layer_decay
    made = groups(model, rate, decay, slower)
    if settings.optimizer == "adamw":
        return CompositeOptimizer([torch.optim.AdamW(made, fused=True)])
    inner = [group for group in made if group["inner"]]
    rest = [group for group in made if not group["inner"]]
    for group in inner:
        group["lr"] *= (settings.matrix_learning_rate or matrix_rate_for(steps)) / rate
    found: list[torch.optim.Optimizer] = [torch.optim.AdamW(rest, fused=True)] if rest else []
    if inner:
        found.append(
            Muon(
                inner,
                momentum=0.95,
                nesterov=True,
                adjust_lr_fn="original",
                compute_dtype=matrix_dtype(next(model.parameters()).device),
            )
        )
    return CompositeOptimizer(found)


def groups(
    model: Model, rate: float, weight_decay: float, layer_decay: float
) -> list[dict[str, Any]]:
    """Parameters that learn, by how fast they do and whether they decay.

    The head learns at the full rate, the top layer at `layer_decay` of it, and so on down to
    the embedding. Matrices decay; biases and norms do not. "inner" are matrices in layers.
    """
    depths = {number: depth for depth, (number, _) in enumerate(model.encoder.plan, 1)}
    top = len(model.encoder.plan) + 1
    found: dict[tuple[int, bool, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        words = name.split(".")
        depth, inner = top if words[0] == "heads" else 0, False
        if words[:2] == ["encoder", "blocks"]:
            depth, inner = depths[int(words[2])], parameter.ndim == 2
        elif words[:2] == ["encoder", "norm"]:
            depth = top - 1
        found.setdefault((depth, parameter.ndim > 1, inner), []).append(parameter)
    if not found:
        raise BertsmithError("everything is frozen: there is nothing to learn")
    return [
        {
            "params": parameters,
            "lr": rate * layer_decay ** (top - depth),
            "weight_decay": weight_decay if matrices else 0.0,
            "inner": inner,
        }
        for (depth, matrices, inner), parameters in found.items()
    ]
