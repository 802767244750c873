"""`build`: a Config → modules; the only place that branches on the config."""

import math
from collections.abc import Container

import torch
from torch import nn

from bertsmith.errors import BertsmithError
from bertsmith.kernels import Dropout
from bertsmith.model.attend import Scores
from bertsmith.model.attention import (
    Attention,
    BiasedAttention,
    DisentangledAttention,
    QueryValueLinear,
    RotaryAttention,
    SharedDisentangledAttention,
)
from bertsmith.model.block import ConvolutionBlock, PostNormBlock, PreNormBlock
from bertsmith.model.config import Config, Disentangled, DistanceBias, HeadConfig, Rotary
from bertsmith.model.embedding import Embedding, PositionTable, SegmentTable
from bertsmith.model.encoder import Encoder, Model
from bertsmith.model.feedforward import FeedForward, activation
from bertsmith.model.heads import AnchoredHead, EnhancedMaskHead, Head
from bertsmith.model.pooling import POOLS
from bertsmith.model.position import RelativeSignal, RotarySignal


def build(config: Config) -> Model:
    """Build the modules of a Config. Use `torch.device("meta")` around it to allocate no memory."""
    encoder = _encoder(config)
    return Model(
        encoder, {kind: build_head(config, encoder, head) for kind, head in config.heads.items()}
    )


@torch.no_grad()
def initialise(
    model: Model,
    deviation: float,
    generator: torch.Generator | None = None,
    only: Container[str] | None = None,
) -> None:
    """Initialise weights like BERT: normal, truncated at two standard deviations; zero biases.

    `only` names the parameters to draw, if not all.
    """
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(path, recurse=False):
            if only is not None and name not in only:
                continue
            if isinstance(module, nn.LayerNorm) and name.endswith("weight"):
                nn.init.ones_(parameter)
            elif parameter.ndim == 1:
                nn.init.zeros_(parameter)
            else:
                nn.init.trunc_normal_(parameter, generator=generator).mul_(deviation)


def _norm(config: Config, width: int = 0) -> nn.LayerNorm:
    return nn.LayerNorm(width or config.width, config.norm_epsilon, bias=config.norm_bias)


def _encoder(config: Config) -> Encoder:
    plan = config.plan
    signals: list[nn.Module] = []
    heard = [0] * len(plan)
    match config.signal:
        case Rotary(bases):
            distinct = sorted(set(bases))
            signals = [RotarySignal(config.per_head, base) for base in distinct]
            heard = [distinct.index(base) for base in bases]
        case Disentangled() as relative:
            table = nn.Embedding(2 * relative.span, config.width)
            norm = _norm(config) if relative.norm else nn.Identity()
            dropout, ends = config.embedding_dropout, (relative.buckets, relative.furthest)
            signals = [RelativeSignal(table, norm, dropout, *ends)]
        case DistanceBias(buckets, furthest):
            table = nn.Embedding(buckets, config.attention_heads)
            signals = [RelativeSignal(table, nn.Identity(), 0.0, buckets, furthest, floored=True)]
    blocks = [_block(config, plan.index(n)) for n in range(max(plan, default=-1) + 1)]
    return Encoder(
        _embedding(config),
        signals,
        blocks,
        _norm(config) if config.pre_norm else nn.Identity(),
        zip(plan, heard, strict=True),
    )


def _embedding(config: Config) -> Embedding:
    width, after = config.token_width, config.norm_after_projection
    marks: dict[str, nn.Module] = {}
    if config.positions:
        marks["position"] = PositionTable(config.positions, width, config.position_offset)
    if config.segments:
        marks["segment"] = SegmentTable(config.segments, width)
    finish: dict[str, nn.Module] = {
        "norm": _norm(config, config.width if after else width)
        if config.embedding_norm
        else nn.Identity(),
        "dropout": Dropout(config.embedding_dropout),
    }
    if config.project_embedding:
        step = {"projection": nn.Linear(width, config.width, bias=not after)}
        finish = step | finish if after else finish | step
    return Embedding(nn.Embedding(config.vocabulary, width), marks, finish)


def _block(config: Config, depth: int) -> nn.Module:
    """The block that first runs at this depth."""
    # A pre-norm encoder's embeddings leave their own norm: a second one would be idle.
    first = nn.Identity() if config.pre_norm and depth == 0 else _norm(config)
    feedforward = FeedForward(
        nn.Linear(config.width, config.feedforward * (1 + config.gated), config.feedforward_bias),
        activation(config.activation),
        Dropout(config.feedforward_inner_dropout),
        nn.Linear(config.feedforward, config.width, config.feedforward_bias),
        config.gated,
    )
    block = (PreNormBlock if config.pre_norm else PostNormBlock)(
        _attention(config, depth),
        feedforward,
        (first, _norm(config)),
        (config.attention_output_dropout, config.feedforward_output_dropout),
    )
    conv = config.convolution
    if conv is None or depth > 0:
        return block
    row = nn.Conv1d(config.width, config.width, conv.size, groups=conv.groups)
    finish = nn.Sequential(Dropout(config.feedforward_output_dropout), activation(conv.activation))
    return ConvolutionBlock(block, row, finish, _norm(config))


def _attention(config: Config, depth: int) -> Attention:
    heads = config.kept[config.plan[depth]] if config.kept else config.attention_heads
    width, inner = config.width, heads * config.per_head
    window = config.windows[depth] if config.windows else None
    parts = (
        QueryValueLinear(width, inner)
        if config.partial_bias
        else nn.Linear(width, 3 * inner, bias=config.attention_bias),
        nn.Linear(inner, width, bias=config.attention_bias),
        heads,
        Scores(1 / math.sqrt(config.per_head * config.scale_terms), window, causal=config.causal),
        config.attention_dropout,
    )
    match config.signal:
        case Rotary():
            return RotaryAttention(*parts)
        case DistanceBias():
            return BiasedAttention(*parts)
        case Disentangled(keys=keys, queries=queries, shared=True):
            return SharedDisentangledAttention(*parts, keys=keys, queries=queries)
        case Disentangled(keys=keys, queries=queries, key_bias=bias):
            key = nn.Linear(width, inner, bias=bias) if keys else None
            query = nn.Linear(width, inner) if queries else None
            return DisentangledAttention(*parts, position_key=key, position_query=query)
    return Attention(*parts)


def build_head(config: Config, encoder: Encoder, head: HeadConfig) -> Head:
    """Build a head for an encoder."""
    if head.pool not in POOLS:
        raise BertsmithError(f"unknown pooling {head.pool!r}; known: {', '.join(POOLS)}")
    steps: dict[str, nn.Module] = {"norm": _norm(config)} if head.anchored else {}
    if head.dense:
        steps["dense"] = nn.Linear(config.width, head.dense, bias=head.dense_bias)
        steps["activation"] = activation(head.activation)
    if head.norm:
        steps["norm"] = _norm(config, head.dense)
    steps["dropout"] = Dropout(head.dropout)
    output: nn.Module = nn.Identity()
    if head.outputs:
        output = nn.Linear(head.dense or config.width, head.outputs, bias=head.bias)
    if head.tied:
        output.weight = encoder.embedding.token.weight  # type: ignore[union-attr]
    parts = (POOLS[head.pool], steps, output)
    if head.enhanced:
        positions = PositionTable(head.enhanced, config.width)
        block = encoder.blocks[config.plan[-1]]
        return EnhancedMaskHead(*parts, positions=positions, block=block)
    return (AnchoredHead if head.anchored else Head)(*parts)
