"""A model with some layers of another: the student of a distillation."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith.checkpoint.assemble import assemble, substitute
from bertsmith.checkpoint.checkpoint import Checkpoint, configure
from bertsmith.checkpoint.names import Translation
from bertsmith.errors import BertsmithError
from bertsmith.model import Config


def spread_layers(depth: int, count: int) -> tuple[int, ...]:
    """Layer numbers from first to last, spread as DistilBERT's: 6 of 12 are 0, 2, 4, 7, 9, 11."""
    if type(count) is not int or not 1 <= count <= depth:
        raise BertsmithError(f"cannot keep {count} layers of a teacher with {depth}")
    if count == 1:
        return (0,)
    return tuple(
        (2 * number * (depth - 1) + count - 1) // (2 * (count - 1)) for number in range(count)
    )


def keep_layers(
    checkpoint: Checkpoint, layers: Sequence[int], *, repeats: bool = False
) -> Checkpoint:
    """Return the model with the given layers only (ascending, from 0); weights are copied.

    With `repeats`, a layer may be given several times: its copies begin with output matrices of
    zero, so that the deeper model has the same outputs until it is trained.
    """
    config = checkpoint.config
    layers = check_layers(config, layers, repeats=repeats)
    stored = dict(checkpoint.model.named_parameters(remove_duplicate=False))
    shared = len({*config.plan}) < len(config.plan)

    def copied(name: str, empty: Tensor) -> Tensor:
        parts = name.split(".")
        if parts[:2] == ["encoder", "blocks"] and not shared:
            parts[2] = str(layers[int(parts[2])])
        return stored[".".join(parts)].detach().clone()

    student = _rebuilt(checkpoint, _settings(checkpoint, layers), copied)
    with torch.no_grad():
        for number, (before, layer) in enumerate(pairwise(layers), 1):
            if layer == before:
                block: Any = student.model.encoder.blocks[number]
                for matrix in (block.attention.output, block.feedforward.down):
                    for parameter in matrix.parameters():
                        parameter.zero_()
    return student


def _rebuilt(
    checkpoint: Checkpoint, settings: dict[str, Any], value: Callable[[str, Tensor], Tensor]
) -> Checkpoint:
    """The model of other settings; `value` makes each parameter from its name and its shape."""
    family, entries = checkpoint.family, checkpoint.entries
    names = Translation(family, settings, entries, checkpoint.config.per_head)
    model = assemble(configure(family, settings, entries), names, "meta")
    empty = model.named_parameters()
    substitute(model, {old: nn.Parameter(value(name, old)) for name, old in empty})
    return replace(checkpoint, model=model.eval(), settings=settings)


def can_average(config: Config) -> bool:
    """Can a layer that averages all tokens be added? Not to layers that share or are pre-norm."""
    plain = config.signal is None and not config.windows and not config.causal
    return plain and not (config.pre_norm or config.order or config.convolution or config.kept)


@torch.no_grad()
def add_averaging_layer(checkpoint: Checkpoint, gain: float = 1000.0) -> Checkpoint:
    """Add a layer after which every state is the normalised mean of all states of its sequence.

    Its queries and keys are zero, so that attention is uniform, and its outputs outweigh the
    residual states. Heads that read the first state then read mean-pooled vectors.
    """
    config = checkpoint.config
    stored = dict(checkpoint.model.named_parameters(remove_duplicate=False))
    device = next(checkpoint.model.parameters()).device
    added = f"encoder.blocks.{config.layers}."

    def initial(name: str, empty: Tensor) -> Tensor:
        if not name.startswith(added):
            return stored[name].detach().clone()
        value = torch.zeros_like(empty, device=device)
        if "_norm.weight" in name:
            value.fill_(1.0)
        elif name.endswith("attention.qkv.weight"):
            value[-config.width :].fill_diagonal_(1.0)
        elif name.endswith("attention.output.weight"):
            value.fill_diagonal_(gain)
        return value

    deeper = _rebuilt(checkpoint, _with_depth(checkpoint, config.layers + 1), initial)
    deeper.model.requires_grad_(False)
    return deeper


def check_layers(
    config: Config, layers: Sequence[int], *, repeats: bool = False
) -> tuple[int, ...]:
    """Raise an error for layer numbers that a model does not have, or if none is left."""
    depth = len(config.plan)
    chosen = tuple(layers)
    listed = ", ".join(map(str, chosen))[:80]
    if (
        not all(type(layer) is int for layer in chosen)
        or not chosen
        or sorted(chosen if repeats else {*chosen}) != list(chosen)
        or not 0 <= chosen[0] <= chosen[-1] < depth
    ):
        needed = f"increasing numbers from 0 to {depth - 1} for this model"
        raise BertsmithError(f"layers must be {needed}, not {listed or 'none'}")
    if len({*chosen}) < len(chosen) and (not config.pre_norm or config.order):
        which = "normalise before each layer, such as ModernBERT, and do not share weights"
        raise BertsmithError(f"layers can be repeated only in models that {which}")
    if config.order and len({*config.plan}) > 1:
        raise BertsmithError(
            "the layers of this model share weights in groups: none can be left out"
        )
    if chosen[0] and (config.pre_norm or config.convolution):
        raise BertsmithError("layer 0 of this model must be kept: no other layer can come first")
    if chosen.count(0) > 1:
        raise BertsmithError("layer 0 cannot be repeated: it is not normalised like the others")
    return chosen


def _settings(checkpoint: Checkpoint, layers: Sequence[int]) -> dict[str, Any]:
    settings = _with_depth(checkpoint, len(layers))
    if pruned := settings.get("pruned_heads"):
        left = [(new, str(old)) for new, old in enumerate(layers) if str(old) in pruned]
        settings["pruned_heads"] = {str(new): pruned[old] for new, old in left}
    settings.pop("layer_types", None)
    if checkpoint.config.windows:
        windows = tuple(checkpoint.config.windows[number] for number in layers)
        if configure(checkpoint.family, settings, {}).windows != windows:  # not its usual pattern
            kinds = ["full_attention" if w is None else "sliding_attention" for w in windows]
            settings["layer_types"] = kinds
    return settings


def _with_depth(checkpoint: Checkpoint, depth: int) -> dict[str, Any]:
    keys = [key for key, fields in checkpoint.family.keys.items() if "layers" in fields.split()]
    present = [key for key in keys if key in checkpoint.settings] or keys[-1:]
    return {**checkpoint.settings, **dict.fromkeys(present, depth)}
