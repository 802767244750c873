"""Ablation: run a model without some heads or layers, and measure the loss or score.

The output of a masked head is zero; that of a mean-ablated head is its mean over all tokens. A
layer that is left out returns its input, or adds its mean output to it. Weights do not change.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
from bertsmith.model.attention import Change
from bertsmith.tasks.classification.task import TASK as CLASSIFICATION
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import evaluate
from bertsmith.tasks.registry import USES

Heads = Iterable[tuple[int, int]]  # layer, head


@dataclass(frozen=True)
class Material:
    """The data of an ablation: inputs, and the loss on them.

    `loss` returns the loss of every target in a batch, and the sequence of each.
    """

    windows: Sequence[Window]
    loss: Callable[[Hidden, Batch, list[int]], tuple[Tensor, Tensor]]


def masked_words(
    bert: LoadedModel, texts: Sequence[str], share: float = 0.15, seed: int = 0
) -> Material:
    """Texts with a fixed set of masked tokens, scored by the loss of predicting them."""
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
        count = max(1, round(share * len(plain)))
        places = sorted(random.choice(plain, count, replace=False).tolist())
        ids = list(window.ids)
        targets.append([(place, ids[place]) for place in places])
        for place in places:
            ids[place] = tokenizer.mask_id
        windows.append(Window(window.number, ids, window.segments, window.tokens, window.first))

    def loss(hidden: Hidden, batch: Batch, chosen: list[int]) -> tuple[Tensor, Tensor]:
        starts = list(accumulate(batch.layout.lengths, initial=0))
        places = [
            (starts[n] + p, id_, n) for n, one in enumerate(chosen) for p, id_ in targets[one]
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
    """Run a model without some heads and layers, within a `with` block.

    With `means` they are replaced by their mean output instead of zero.
    """
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
        changes[layer] = _replaced(kept, None if means is None else means.heads[layer])
    nothing = next(bert.model.parameters()).new_zeros(bert.checkpoint.config.width)
    added = {n: nothing if means is None else means.layers[n].to(nothing) for n in left_out}
    encoder.changes, encoder.skipped = changes, {**encoder.skipped, **added}
    try:
        yield
    finally:
        encoder.changes, encoder.skipped = before


def _replaced(kept: Tensor, mean: Tensor | None) -> Change:
    """What becomes of (T, H, d) when only some heads are kept."""

    def change(mixed: Tensor) -> Tensor:
        instead = mixed.new_zeros(()) if mean is None else mean.to(mixed)
        return torch.where(kept, mixed, instead)

    return change


def mean_outputs(bert: LoadedModel, windows: Sequence[Window]) -> Means:
    """Return the mean output of each head and each layer."""
    encoder, counts = bert.model.encoder, head_counts(bert)
    width, per_head = bert.checkpoint.config.width, bert.checkpoint.config.per_head
    nothing = torch.zeros((), dtype=torch.float64, device=bert.device)
    heads = [nothing.new_zeros(count, per_head) for count in counts]
    layers = [nothing.new_zeros(width) for _ in counts]

    def watch(layer: int) -> Change:
        def change(mixed: Tensor) -> Tensor:
            heads[layer] += mixed.double().sum(0)
            return mixed

        return change

    before = encoder.changes
    encoder.changes = {layer: watch(layer) for layer in range(len(counts))}
    try:
        with torch.inference_mode():
            for batch, _ in _batches(bert, windows):
                trace = Trace(states=True)
                encoder(batch, trace)
                for layer, (before_layer, after_layer) in enumerate(pairwise(trace.hidden)):
                    layers[layer] += (after_layer.double() - before_layer.double()).sum(0)
    finally:
        encoder.changes = before
    tokens = max(1, sum(len(window.ids) for window in windows))
    return Means(*([(one / tokens).float() for one in sums] for sums in (heads, layers)))


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
            encoder.changes = {layer: _gated(gate, owner) for layer, gate in enumerate(gates)}
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


def _gated(gate: Tensor, owner: Tensor) -> Change:
    """Each sequence's heads scaled by gates of its own: (N, H) on (T, H, d)."""
    return lambda mixed: mixed * gate[owner, :, None].to(mixed.dtype)


def _batches(bert: LoadedModel, windows: Sequence[Window]) -> Iterator[tuple[Batch, list[int]]]:
    budget = bert.budget or BUDGETS.get(bert.device.type, 2048)
    for chosen in packed([len(window.ids) for window in windows], budget):
        group = [windows[number] for number in chosen]
        batch = Batch.of([one.ids for one in group], [one.segments for one in group])
        yield batch.to(bert.device), chosen


# ------------------------------------------------------------------ labelled files


def scores(bert: LoadedModel, dataset: Dataset[Any]) -> dict[str, float]:
    """Every score that the task has, over all gold."""
    every_score = evaluate(bert, dataset).scores
    return {name: value for name, value in every_score.items() if name != "count"}


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
