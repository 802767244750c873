"""Attention weights of a model for one text, computed on demand."""

import ctypes
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.analysis.weights import AttentionWeights
from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.model import Scores, Trace
from bertsmith.model.attention import Look
from bertsmith.tokenizer import Encoding

Floats = NDArray[np.float32]
LONG = 2048  # tokens from which on memory is watched


@dataclass(frozen=True)
class Token:
    """One token as a reader knows it."""

    text: str  # the characters it stands for; of a special token its name
    token: str  # how the vocabulary spells it
    source: int | None  # 0 first text, 1 second text, None special token
    apart: bool  # does it begin a word, as the text is written?


def encoded(
    bert: LoadedModel, text: str, pair: str | None = None, *, masks: bool = False
) -> Encoding:
    """Encode a text or a pair that the model reads at once; with `masks`, [MASK] is a token."""
    encoding = bert.tokenizer.encode(text, pair, spelled="mask" if masks else "text")
    if len(encoding) > bert.max_length:
        raise BertsmithError(
            f"the text has {len(encoding):,} tokens, but the model reads {bert.max_length:,} at "
            "once: shorten it"
        )
    return encoding


def head_counts(bert: LoadedModel) -> list[int]:
    """How many heads each layer has: after pruning they may differ."""
    config = bert.checkpoint.config
    return [config.kept[block] if config.kept else config.attention_heads for block in config.plan]


def check_heads(bert: LoadedModel, heads: Iterable[tuple[int, int]]) -> None:
    """Refuse heads (layer, head) that the model does not have."""
    counts = head_counts(bert)
    for layer, head in heads:
        if not (0 <= layer < len(counts) and 0 <= head < counts[layer]):
            raise BertsmithError(f"layer {layer} has no head {head}")


def by_layer(values: Tensor, heads: Sequence[int]) -> Floats:
    """A number for every head, layer after layer, as (layers, heads); NaN where there is none."""
    table = np.full((len(heads), max(heads)), np.nan, np.float32)
    for row, own in zip(table, values.split(list(heads)), strict=True):
        row[: len(own)] = own.numpy()
    return table


@dataclass(frozen=True)
class AttentionMaps:
    """The attention of a model in a text, computed when asked for; pruned heads are NaN."""

    bert: LoadedModel
    name: str
    ids: list[int]
    segments: list[int]
    tokens: list[Token]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    said: str = ""  # what the model makes of the text, where that was asked
    worth: list[float] = field(default_factory=list)  # what each token's word does for it

    def __repr__(self) -> str:
        return (
            f"<attention of {self.name}: {len(self)} tokens, {len(self.layers)} layers, "
            f"{len(self.heads)} heads>"
        )

    def __len__(self) -> int:
        return len(self.ids)

    def visit(self, look: Callable[[int, AttentionWeights], None]) -> None:
        """Run the model once; `look` gets each chosen layer's weights of the heads that it has."""
        batch = Batch.of([self.ids], [self.segments]).to(self.bert.device)

        def shown(layer: int) -> Look:
            def call(query: Tensor, key: Tensor, scores: Scores) -> None:
                if len(self) > LONG:
                    give_back()
                if layer in self.layers:
                    own = [head for head in self.heads if head < query.shape[1]]
                    look(layer, AttentionWeights.of(query, key, scores, own))

            return call

        looks = {layer: shown(layer) for layer in range(len(self.bert.model.encoder.plan))}
        with torch.inference_mode():
            self.bert.model.encoder(batch, Trace(looks=looks))

    def rows(self, places: Sequence[int]) -> Floats:
        """What these tokens look at: (layers, heads, r, n); each row sums to one."""
        self._check(places)
        return self._gather(lambda weights: weights.rows(places))

    def columns(self, places: Sequence[int]) -> Floats:
        """How much each token looks at these: (layers, heads, n, c)."""
        self._check(places)
        return self._gather(lambda weights: weights.columns(places))

    def blocks(self, size: int) -> Floats:
        """Attention between blocks of `size` tokens, for long texts: (layers, heads, b, b)."""
        if size < 1:
            raise BertsmithError(f"the block size must be at least 1, not {size}")
        return self._gather(lambda weights: weights.blocks(size))

    def maps(self) -> Floats:
        """All weights: (layers, heads, n, n). Mind the memory of long texts."""
        return self._gather(lambda weights: weights.rows(range(len(self))))

    def rollout(self, *, causal: bool = False) -> Floats:
        """Attention through layers and residual paths, up to each layer: (layers, n, n).

        `causal` is what the same scores would give if no token saw what follows it.
        """
        return rollout(np.nanmean(self.maps(), axis=1), causal=causal)

    def _gather(self, make: Callable[[AttentionWeights], Tensor]) -> Floats:
        arrays = np.empty(0, np.float32)

        def look(layer: int, weights: AttentionWeights) -> None:
            nonlocal arrays
            one = make(weights).cpu().numpy()
            if not arrays.size:
                shape = (len(self.layers), len(self.heads), *one.shape[1:])
                arrays = np.full(shape, np.nan, np.float32)
            arrays[self.layers.index(layer), : len(one)] = one

        self.visit(look)
        return arrays

    def _check(self, places: Sequence[int]) -> None:
        for place in places:
            if not 0 <= place < len(self):
                raise BertsmithError(f"no token {place}: the text has {len(self)} tokens")


def give_back() -> None:
    """Hand freed memory back to the system, of which Linux's C library would keep tens of MB."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl has not
        if trim is not None:
            trim(0)


def rollout(means: Floats, *, causal: bool = False) -> Floats:
    """Mean maps of all layers → attention from each layer down to the input (Abnar, Zuidema).

    Half of what a token becomes is what it was: each map is averaged with the identity.
    """
    passed = np.eye(means.shape[-1], dtype=np.float32)
    layers = []
    for mean in means:
        seen = np.tril(mean) if causal else mean
        seen = seen / np.maximum(seen.sum(-1, keepdims=True), 1e-12)
        passed = (0.5 * seen + 0.5 * np.eye(len(mean), dtype=np.float32)) @ passed
        layers.append(passed)
    return np.stack(layers)
