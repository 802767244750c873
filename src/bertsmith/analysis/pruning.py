"""Pruning of heads: a smaller model, or the same shapes with zeros."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from bertsmith.analysis.ablation import block_heads
from bertsmith.analysis.maps import check_heads, head_counts
from bertsmith.checkpoint import Checkpoint
from bertsmith.checkpoint.assemble import assemble, substitute
from bertsmith.checkpoint.names import Translation
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.model.config import Config

# A block's attention in the names of parameters, and what is below it.
INSIDE = re.compile(r"encoder\.blocks\.(\d+)\.(?:block\.)?attention\.(.+)")


Loaded = TypeVar("Loaded", bound="LoadedModel")


def pruned(bert: Loaded, heads: Iterable[tuple[int, int]]) -> Loaded:
    """Return a smaller model without these heads (layer, head); the given model is not changed."""
    gone = _by_block(bert, heads)
    checkpoint = bert.checkpoint
    old: Mapping[str, Any] = checkpoint.settings.get("pruned_heads") or {}
    settings = {**checkpoint.settings, "pruned_heads": _merged(checkpoint.config, old, gone)}
    smaller = replace(checkpoint, settings=settings)
    config = smaller.config
    names = Translation(checkpoint.family, settings, checkpoint.entries, config.per_head)
    model = assemble(config, names, "meta")
    counts = block_heads(bert)
    kept = {
        block: [head for head in range(count) if head not in gone.get(block, set())]
        for block, count in enumerate(counts)
    }
    parameters = dict(checkpoint.model.named_parameters())
    values = {}
    for name, empty in model.named_parameters():
        value = parameters[name].detach()
        if match := INSIDE.fullmatch(name):
            value = _cut(match[2], value, counts[int(match[1])], kept[int(match[1])])
        values[empty] = nn.Parameter(value.clone())
    substitute(model, values)
    family, entries = checkpoint.family, checkpoint.entries
    made = Checkpoint(model.eval(), family, settings, entries, notes=checkpoint.notes)
    return type(bert)(made, bert.tokenizer, sentence=bert.sentence, budget=bert.budget)


def zeroed(bert: LoadedModel, heads: Iterable[tuple[int, int]]) -> None:
    """Set the output weights of these heads to zero, in place; every tensor keeps its shape."""
    counts = block_heads(bert)
    gone = _by_block(bert, heads)
    with torch.no_grad():
        for name, parameter in bert.model.named_parameters():
            match = INSIDE.fullmatch(name)
            if match and match[2] == "output.weight" and int(match[1]) in gone:
                number = int(match[1])
                parts = parameter.view(len(parameter), counts[number], -1)
                parts[:, sorted(gone[number])] = 0.0


def least(table: Any, count: int, counts: Iterable[int]) -> list[tuple[int, int]]:
    """Return the `count` least important heads of a (layers, heads) table; each layer keeps one."""
    left = list(counts)
    ranked = sorted(
        (float(table[layer][head]), layer, head)
        for layer, n in enumerate(left)
        for head in range(n)
    )
    chosen: list[tuple[int, int]] = []
    for _, layer, head in ranked:
        if len(chosen) < count and left[layer] > 1:
            chosen.append((layer, head))
            left[layer] -= 1
    return sorted(chosen)


def _by_block(bert: LoadedModel, heads: Iterable[tuple[int, int]]) -> dict[int, set[int]]:
    """The heads that go, by block. Where layers share a block, it loses a head for all."""
    heads, plan = list(heads), bert.model.encoder.plan
    check_heads(bert, heads)
    gone: dict[int, set[int]] = {}
    for layer, head in heads:
        gone.setdefault(plan[layer][0], set()).add(head)
    for layer, count in enumerate(head_counts(bert)):
        if len(gone.get(plan[layer][0], ())) == count:
            raise BertsmithError(f"layer {layer} would lose all its heads: keep at least one")
    return gone


def _merged(
    config: Config, old: Mapping[str, Any], gone: Mapping[int, set[int]]
) -> dict[str, list[int]]:
    """`pruned_heads` for config.json, which counts heads as they were before any was cut."""
    by_layer: dict[str, list[int]] = {}
    for block in sorted({*gone, *map(int, old)}):
        before = {int(head) for head in old.get(str(block), ())}
        left = [head for head in range(config.attention_heads) if head not in before]
        by_layer[str(block)] = sorted(before | {left[head] for head in gone.get(block, ())})
    return by_layer


def _cut(part: str, value: Tensor, count: int, kept: list[int]) -> Tensor:
    """What is left of one of attention's tensors when only some of its heads are kept."""
    if part == "output.bias":
        return value
    if part == "output.weight":
        return value.unflatten(1, (count, -1))[:, kept].flatten(1)
    if part in ("qkv.weight", "qkv.bias"):
        return value.unflatten(0, (3, count, -1))[:, kept].flatten(0, 2)
    return value.unflatten(0, (count, -1))[kept].flatten(0, 1)  # distances', or single biases
