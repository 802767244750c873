"""DeBERTa v2 and v3: distances in logarithmic buckets, shared projections, a convolution."""

from dataclasses import replace
from typing import Any

from bertsmith.families import deberta
from bertsmith.families.bert import size
from bertsmith.families.deberta import context, embedded, furthest, terms
from bertsmith.families.family import Family, Names, Settings, head, setting, stacked
from bertsmith.model import Config, Convolution, Disentangled, HeadConfig

PUBLISHED: dict[str, Any] = {
    **deberta.PUBLISHED,
    "share_att_key": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
}
SECOND: dict[str, Any] = {
    **PUBLISHED,
    "conv_kernel_size": 3,
    "conv_act": "gelu",
    "attention_head_size": 64,
}


def adjust(config: Config, settings: Settings) -> Config:
    """Relative attention over buckets, and a convolution where there is one."""
    kinds, far = terms(settings), furthest(config, settings)
    buckets = max(0, setting(settings, "position_buckets", -1))
    relative = Disentangled(
        span=buckets or far,
        buckets=buckets,
        furthest=far,
        keys="c2p" in kinds,
        queries="p2c" in kinds,
        shared=bool(settings.get("share_att_key")),
        norm="layer_norm" in setting(settings, "norm_rel_ebd", "").lower(),
    )
    near = setting(settings, "conv_kernel_size", 0)
    groups, act = setting(settings, "conv_groups", 1), setting(settings, "conv_act", "tanh")
    return replace(
        embedded(config, settings),
        signal=relative if settings.get("relative_attention") else None,
        scale_terms=1 + relative.keys + relative.queries,
        convolution=Convolution(near, groups, act) if near > 0 else None,
    )


LAYER = "encoder.layer.*.attention.self."
NAMES: Names = {
    **{ours: theirs for ours, theirs in deberta.NAMES.items() if ".qkv" not in ours},
    "signals.0.norm": "encoder.LayerNorm",
    "blocks.*.attention.qkv": stacked(LAYER, "query_proj", "key_proj", "value_proj"),
    "blocks.*.attention.position_key": LAYER + "pos_key_proj",
    "blocks.*.attention.position_query": LAYER + "pos_query_proj",
    "blocks.0.convolution": "encoder.conv.conv",
    "blocks.0.norm": "encoder.conv.LayerNorm",
}


def replaced(config: Config, settings: Settings) -> HeadConfig:
    """Was this token replaced? Judged from its state beside the first one."""
    return HeadConfig(1, dense=config.width, activation=config.activation, anchored=True)


RTD = {"at": "mask_predictions.", "norm": "LayerNorm", "dense": "dense"}

FAMILY = Family(
    name="deberta-v2",
    stems={"deberta-v2": "DebertaV2"},
    prefix="deberta.",
    base=replace(
        deberta.BASE,
        vocabulary=128100,
        width=1536,
        layers=24,
        attention_heads=24,
        feedforward=6144,
    ),
    keys={**deberta.FAMILY.keys, "attention_head_size": "head_width"},
    sizes={
        "deberta-v2-xlarge": size(1536, 24, **SECOND),
        "deberta-v2-xxlarge": size(1536, 48, **SECOND),
        "deberta-v3-xsmall": size(384, 12, **PUBLISHED),
        "deberta-v3-small": size(768, 6, **PUBLISHED),
        "deberta-v3-base": size(768, 12, **PUBLISHED),
        "deberta-v3-large": size(1024, 24, **PUBLISHED),
        "mdeberta-v3-base": size(768, 12, **PUBLISHED, vocab_size=251000),
    },
    names=NAMES,
    heads=(
        *deberta.HEADS,
        head("replaced", replaced, **RTD, output="classifier"),
        head("replaced", replaced, **RTD, output="classifer"),  # as its authors spell it
        head("choose", context(1), dense="pooler.dense", output="classifier"),
    ),
    adjust=adjust,
)
