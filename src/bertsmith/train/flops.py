"""Operations of a model, counted exactly; estimates of its memory; and peaks of devices."""

import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import nn

from bertsmith.model import Encoder
from bertsmith.model.attention import Attention, DisentangledAttention, SharedDisentangledAttention
from bertsmith.model.block import ConvolutionBlock
from bertsmith.model.heads import EnhancedMaskHead, Head
from bertsmith.model.position import RelativeSignal
from bertsmith.train.distributed import device_named
from bertsmith.train.precision import Name, Precision, supported

TOKENS = 16384  # tokens of a pass by default


def training_flops(
    learner: Any, length: int, *, tokens: int = TOKENS, masked: float = 0.15
) -> float:
    """Floating-point operations for one token of training, forward and backward.

    `learner` is a model with its objectives; a pass has about `tokens` tokens in sequences of
    `length`, of which the fraction `masked` is predicted. Multiply-adds of matrices count as two;
    lookups, norms, activations and softmax are left out. The backward pass is twice the forward.
    """
    sequences = max(1, tokens // length)
    tokens = length * sequences
    total, read = 0.0, dict[str, Encoder]()
    for objective in learner.objectives:
        passes = objective.passes(learner.model, tokens, sequences, masked * tokens)
        for model, head, rows, reads in passes:
            read.setdefault(reads, model.encoder)
            if head:
                total += head_flops(model.heads[head], rows, model.encoder, length, sequences)
    if len(read) > 1:
        read.pop("", None)  # reads a pass that there is already
    total += sum(encoder_flops(encoder, length, sequences) for encoder in read.values())
    return 3 * total / tokens


def encoder_flops(encoder: Encoder, length: int, sequences: int = 1) -> float:
    """Floating-point operations of a forward pass over sequences of one length."""
    tokens = length * sequences
    total, distances = float(tokens * _linear(encoder.embedding)), _distances(encoder)
    for number, _ in encoder.plan:
        total += _block(encoder.blocks[number], length, sequences, distances)
    return total


def head_flops(
    head: nn.Module, rows: float, encoder: Encoder, length: int, sequences: int = 1
) -> float:
    """Floating-point operations of a head on so many rows of a forward pass."""
    assert isinstance(head, Head)
    total = rows * (_linear(head.transform) + _linear(head.output))
    if isinstance(head, EnhancedMaskHead):  # runs the last block twice more, with new queries
        again = length * sequences * _linear(_attention(head.block[0]).qkv)
        total += 2 * (_block(head.block[0], length, sequences, _distances(encoder)) + again)
    return total


def _block(block: nn.Module, length: int, sequences: int, distances: int) -> float:
    """A block's forward pass; `distances` are the rows of the relative-distance table."""
    tokens, attention = length * sequences, _attention(block)
    inner = attention.output.in_features
    within: Any = block.block if isinstance(block, ConvolutionBlock) else block
    linear = (attention.qkv, attention.output, within.feedforward.up, within.feedforward.down)
    total = tokens * sum(map(_linear, linear))
    total += 4 * tokens * inner * visible_keys(length, attention.scores.window)
    if isinstance(block, ConvolutionBlock):
        row = block.convolution
        # Zero padding between sequences, whose number `Layout.ends` rounds up.
        gaps = ((1 << (sequences - 1).bit_length()) - 1) * (row.kernel_size[0] // 2)
        total += 2 * (tokens + gaps) * row.weight.numel()
    terms = 0
    if isinstance(attention, DisentangledAttention):
        maps = [part for part in (attention.position_key, attention.position_query) if part]
        terms, total = len(maps), total + distances * sum(map(_linear, maps))
    elif isinstance(attention, SharedDisentangledAttention):
        terms = attention.keys + attention.queries
        total += distances * _linear(attention.qkv)
    return total + terms * 2 * tokens * inner * (2 * length - 1)


def visible_keys(length: int, window: int | None) -> float:
    """The mean number of keys that a query of a sequence sees."""
    if window is None or length <= window + 1:
        return float(length)
    outside = length - 1 - window  # keys beyond the window, on one side of the outermost query
    return length - outside * (outside + 1) / length


def _linear(module: nn.Module) -> int:
    """Operations of the linear maps of a module on one row."""
    maps = (part for part in module.modules() if isinstance(part, nn.Linear))
    return sum(2 * part.weight.numel() for part in maps)


def _attention(block: nn.Module) -> Any:
    return next(part for part in block.modules() if isinstance(part, Attention))


def _distances(encoder: Encoder) -> int:
    """The rows of the relative-distance tables."""
    signals = (part for part in encoder.signals if isinstance(part, RelativeSignal))
    return sum(signal.table.num_embeddings for signal in signals)


def parameters_of(module: nn.Module) -> int:
    """The number of parameters; shared ones count once."""
    return sum(parameter.numel() for parameter in module.parameters())


def training_memory(
    module: nn.Module, *, micro_tokens: int, masked: float, half: bool = False, shards: int = 1
) -> int:
    """Return the bytes of weights, gradients, Adam's moments and activations for backward.

    `half`: activations are bfloat16. `shards`: number of devices that weights and moments are
    sharded over (FSDP).
    """
    size = 2 if half else 4
    kept = sum(size * (12 * width + 3 * inner) for width, inner in _widths(module))
    rows = max(p.shape[0] for p in module.parameters() if p.ndim > 1)
    states = 16 * parameters_of(module) / shards
    return int(states + micro_tokens * kept + masked * micro_tokens * rows * (4 + 2 * size))


def inference_memory(module: nn.Module, *, tokens: int) -> int:
    """Return the bytes of weights and of the largest activations of one layer, in float32."""
    widest = max((6 * width + inner for width, inner in _widths(module)), default=0)
    return int(4 * (parameters_of(module) + tokens * widest))


def _widths(module: nn.Module) -> Iterator[tuple[int, int]]:
    """The width and the largest number of matrix rows of each layer of all encoders."""
    for encoder in (part for part in module.modules() if isinstance(part, Encoder)):
        for number, _ in encoder.plan:
            block = encoder.blocks[number]
            inner = max(p.shape[0] for p in block.parameters() if p.ndim > 1)
            yield _attention(block).output.out_features, inner


@cache
def peak_rate(precision: Name, device: str = "") -> float:
    """Floating-point operations per second of this device in matrix products, measured."""
    chosen = device_named(device)
    kind: Any = Precision.of(supported(precision, chosen), chosen).compute
    size = 8192 if chosen.type == "cuda" else 1024
    # Random numbers: with ones a GPU draws less power and is faster than it ever is in training.
    random = torch.Generator().manual_seed(0)
    a = torch.randn(size, size, generator=random).to(chosen, kind)
    best = float("inf")
    for _ in range(5):
        began = now(chosen)
        a @ a
        best = min(best, now(chosen) - began)
    return 2 * size**3 / best


def now(device: torch.device) -> float:
    """The time in seconds at which all work of a device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
