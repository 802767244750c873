"""Ablation: run a model without some heads or layers, and measure the loss or score.

The output of a masked head is zero; that of a mean-ablated head is its mean over all tokens. A
layer that is left out returns its input, or adds its mean output to it. Weights do not change.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.analysis.maps import Floats, by_layer, check_heads, head_counts
from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.run import BUDGETS, packed
from bertsmith.infer.windows import Window
from bertsmith.model import Hidden, Trace
from bertsmith.tasks.classification.task import TASK as CLASSIFICATION
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import evaluate
from bertsmith.tasks.registry import USES

Heads = Iterable[tuple[int, int]]  # layer, head


@dataclass(frozen=True)
class Material:
    """The inputs of an ablation; `loss` returns each target's loss in a batch, and its sequence."""

    windows: Sequence[Window]
    loss: Callable[[Hidden, Batch, list[int]], tuple[Tensor, Tensor]]


def masked_words(bert: LoadedModel, texts: Sequence[str], seed: int = 0) -> Material:
    """Texts with 15 % of their tokens masked, scored by the loss of predicting them."""
    USES["fill-mask"].demand(bert)
    tokenizer = bert.tokenizer
    if tokenizer.mask_id is None:
        raise BertsmithError("this tokenizer has no mask token")
    random = np.random.default_rng(seed)
    windows, targets = [], []
    for window in bert.windows(texts):
        plain = [n for n, id_ in enumerate(window.ids) if id_ not in tokenizer.special_ids]
        if not plain:
            continue
        count = max(1, round(0.15 * len(plain)))
        places = sorted(random.choice(plain, count, replace=False).tolist())
        targets.append([(place, window.ids[place]) for place in places])
        ids = [tokenizer.mask_id if n in places else id_ for n, id_ in enumerate(window.ids)]
        windows.append(replace(window, ids=ids))

    def loss(hidden: Hidden, batch: Batch, chosen: list[int]) -> tuple[Tensor, Tensor]:
        starts = accumulate(batch.layout.lengths, initial=0)
        places = [
            (start + place, id_, sequence)
            for sequence, (start, number) in enumerate(zip(starts, chosen, strict=False))
            for place, id_ in targets[number]
        ]
        rows, ids, owner = torch.tensor(places, device=hidden.last.device).unbind(1)
        logits = bert.model.heads["masked_lm"](hidden, batch, rows).float()
        return F.cross_entropy(logits, ids, reduction="none"), owner

    return Material(windows, loss)


def labelled(
    bert: LoadedModel,
    texts: Sequence[str],
    labels: Sequence[str],
    pairs: Sequence[str] | None = None,
) -> Material:
    """Encode texts (or pairs of texts) with their labels; the loss is that of predicting them."""
    USES["classify"].demand(bert)
    known = {name: number for number, name in enumerate(bert.checkpoint.labels)}
    for label in labels:
        if label not in known:
            raise BertsmithError(f"the model has no label {label!r}; it has: {', '.join(known)}")
    windows = bert.windows(texts, pairs, how=bert.windower(long="cut"))
    gold = torch.tensor([known[labels[window.number]] for window in windows])

    def loss(hidden: Hidden, batch: Batch, chosen: list[int]) -> tuple[Tensor, Tensor]:
        logits = bert.model.heads["classify"](hidden, batch).float()
        right = gold[chosen].to(logits.device)
        return F.cross_entropy(logits, right, reduction="none"), torch.arange(len(chosen))

    return Material(windows, loss)


def loss(bert: LoadedModel, material: Material) -> float:
    """The mean loss over all targets."""
    total, count = 0.0, 0
    with torch.inference_mode():
        for batch, chosen in _batches(bert, material.windows):
            places, _ = material.loss(bert.model.encoder(batch), batch, chosen)
            total, count = total + float(places.double().sum()), count + len(places)
    if not count:
        raise BertsmithError("no examples to measure on")
    return total / count


def block_heads(bert: LoadedModel) -> list[int]:
    """Return the number of heads of each block; several layers may share a block."""
    blocks: list[Any] = [getattr(block, "block", block) for block in bert.model.encoder.blocks]
    return [block.attention.heads for block in blocks]


class Means(NamedTuple):
    """The mean outputs of heads and layers over all tokens."""

    heads: list[Tensor]  # (H, d) for each layer
    layers: list[Tensor]  # (D,) for each layer


@contextmanager
def ablated(
    bert: LoadedModel, heads: Heads = (), layers: Iterable[int] = (), means: Means | None = None
) -> Iterator[None]:
    """Run a model without some heads and layers: their outputs are zero, or their `means`."""
    encoder, counts = bert.model.encoder, head_counts(bert)
    gone, left_out = sorted(set(heads)), sorted(set(layers))
    check_heads(bert, gone)
    for layer in left_out:
        if not 0 <= layer < len(counts):
            raise BertsmithError(f"no layer {layer}: layers are numbered 0 to {len(counts) - 1}")
    before = encoder.changes, encoder.skipped
    changes = dict(encoder.changes)
    for layer in {layer for layer, _ in gone}:
        kept = torch.ones(counts[layer], 1, dtype=torch.bool, device=bert.device)
        kept[[head for place, head in gone if place == layer]] = False
        mean = torch.zeros(()) if means is None else means.heads[layer]
        changes[layer] = partial(_replaced, kept, mean)
    zeros = next(bert.model.parameters()).new_zeros(bert.checkpoint.config.width)
    added = {n: zeros if means is None else means.layers[n].to(zeros) for n in left_out}
    encoder.changes, encoder.skipped = changes, {**encoder.skipped, **added}
    try:
        yield
    finally:
        encoder.changes, encoder.skipped = before


def _replaced(kept: Tensor, mean: Tensor, mixed: Tensor) -> Tensor:
    """The outputs of all heads (T, H, d) with the mean in place of those that are not kept."""
    return torch.where(kept, mixed, mean.to(mixed))


def mean_outputs(bert: LoadedModel, windows: Sequence[Window]) -> Means:
    """Return the mean output of each head and each layer."""
    encoder, counts, config = bert.model.encoder, head_counts(bert), bert.checkpoint.config
    zeros = partial(torch.zeros, dtype=torch.float64, device=bert.device)
    heads = [zeros(count, config.per_head) for count in counts]
    layers = [zeros(config.width) for _ in counts]

    def add(layer: int, mixed: Tensor) -> Tensor:
        heads[layer] += mixed.double().sum(0)
        return mixed

    before = encoder.changes
    encoder.changes = {layer: partial(add, layer) for layer in range(len(counts))}
    try:
        with torch.inference_mode():
            for batch, _ in _batches(bert, windows):
                trace = Trace(states=True)
                encoder(batch, trace)
                for total, (inputs, outputs) in zip(layers, pairwise(trace.hidden), strict=True):
                    total += (outputs.double() - inputs.double()).sum(0)
    finally:
        encoder.changes = before
    tokens = max(1, sum(len(window.ids) for window in windows))
    return Means(*([(total / tokens).float() for total in sums] for sums in (heads, layers)))


def one_by_one(bert: LoadedModel, cost: Callable[[], float], means: Means | None = None) -> Floats:
    """Return the increase of a cost (loss or negative score) without each head: (layers, heads)."""
    counts, before = head_counts(bert), cost()
    increases = []
    for layer, count in enumerate(counts):
        for head in range(count):
            with ablated(bert, [(layer, head)], means=means):
                increases.append(cost() - before)
    return by_layer(torch.tensor(increases), counts)


def importance(bert: LoadedModel, material: Material) -> Floats:
    """Estimate how much the loss depends on each head, in one pass: (layers, heads).

    The mean over inputs of |dL/dg|, where g scales the output of a head, normalised within each
    layer, as in Michel et al. (2019).
    """
    encoder, counts = bert.model.encoder, head_counts(bert)
    total = [torch.zeros(count, dtype=torch.float64) for count in counts]
    before, inputs = encoder.changes, 0
    try:
        for batch, chosen in _batches(bert, material.windows):
            size = len(batch.layout.lengths)
            gates = [torch.ones(size, n, device=bert.device, requires_grad=True) for n in counts]
            owner = batch.layout.owner
            encoder.changes = {n: partial(_gated, gate, owner) for n, gate in enumerate(gates)}
            with torch.enable_grad():
                losses, belongs = material.loss(encoder(batch), batch, chosen)
                # The mean over each input's own targets, then one gradient for all inputs.
                each = losses.new_zeros(size).index_add(0, belongs.to(losses.device), losses)
                targets = belongs.bincount(minlength=size).clamp(min=1).to(losses.device)
                slopes = torch.autograd.grad((each / targets).sum(), gates)
            for layer, slope in enumerate(slopes):
                total[layer] += slope.abs().sum(0).double().cpu()
            inputs += size
    finally:
        encoder.changes = before
    scaled = [row / inputs / (row / inputs).norm().clamp(min=1e-30) for row in total]
    return by_layer(torch.cat(scaled), counts)


def _gated(gate: Tensor, owner: Tensor, mixed: Tensor) -> Tensor:
    """Each sequence's heads scaled by gates of its own: (N, H) on (T, H, d)."""
    return mixed * gate[owner, :, None].to(mixed.dtype)


def _batches(bert: LoadedModel, windows: Sequence[Window]) -> Iterator[tuple[Batch, list[int]]]:
    budget = bert.budget or BUDGETS.get(bert.device.type, 2048)
    for chosen in packed([len(window.ids) for window in windows], budget):
        group = [windows[number] for number in chosen]
        batch = Batch.of([window.ids for window in group], [window.segments for window in group])
        yield batch.to(bert.device), chosen


# ------------------------------------------------------------------ labelled files


def scores(bert: LoadedModel, dataset: Dataset[Any]) -> dict[str, float]:
    """Every score that the task has, over all gold."""
    every_score = evaluate(bert, dataset).scores.items()
    return {name: value for name, value in every_score if name != "count"}


def material(bert: LoadedModel, dataset: Dataset[Any]) -> Material:
    """The examples of a file of classes, with the loss of telling them."""
    if dataset.task != CLASSIFICATION.name:
        alone = setting_name("use one_by_one", option="add --alone")
        raise BertsmithError(
            f"gradients rank heads for {CLASSIFICATION.name} only, not for {dataset.task}: {alone}"
        )
    rows = dataset.gold()
    pairs = [one.pair for one in rows] if rows and rows[0].pair is not None else None
    return labelled(bert, [one.text for one in rows], [one.label for one in rows], pairs)


def windows(bert: LoadedModel, dataset: Dataset[Any]) -> list[Window]:
    """All that a model reads of a file: texts, or a first text with each of the others."""
    inputs = []
    for example in dataset.examples:
        first, *others = example.texts
        inputs += bert.windows([first] * max(1, len(others)), others or None)
    return inputs
