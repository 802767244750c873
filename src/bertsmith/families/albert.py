"""ALBERT: factorised embeddings, and one block that runs at every depth."""

from dataclasses import replace
from functools import partial

from bertsmith.errors import BertsmithError
from bertsmith.families import bert
from bertsmith.families.bert import masked_lm, size, undropped
from bertsmith.families.family import (
    NO_DROPOUT,
    TIED,
    Family,
    Names,
    Settings,
    head,
    setting,
    stacked,
    untied,
)
from bertsmith.families.roberta import LM_HEAD
from bertsmith.model import Config

SHAPES = {
    "base": size(768, 12),
    "large": size(1024, 24),
    "xlarge": size(2048, 24, heads=16),
    "xxlarge": size(4096, 12),
}
FIRST = {"hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


def adjust(config: Config, settings: Settings) -> Config:
    """Depths fall into groups; each group has its own `inner` blocks, run one after another."""
    groups, inner = (setting(settings, key, 1) for key in ("num_hidden_groups", "inner_group_num"))
    if not (1 <= groups <= config.layers and 1 <= inner <= 100):
        raise BertsmithError(f"config.json: {groups} groups of {inner} for {config.layers} layers")
    starts = (depth * groups // config.layers * inner for depth in range(config.layers))
    return replace(config, order=tuple(start + part for start in starts for part in range(inner)))


def block_label(settings: Settings, number: int) -> str:
    """A block's group and its place there."""
    group, place = divmod(number, setting(settings, "inner_group_num", 1))
    return f"{group}.albert_layers.{place}"


LAYER = "encoder.albert_layer_groups.*."
NAMES: Names = {
    **bert.EMBEDDING,
    "embedding.finish.projection": "encoder.embedding_hidden_mapping_in",
    "blocks.*.attention.qkv": stacked(LAYER + "attention.", "query", "key", "value"),
    "blocks.*.attention.output": LAYER + "attention.dense",
    "blocks.*.attention_norm": LAYER + "attention.LayerNorm",
    "blocks.*.feedforward.up": LAYER + "ffn",
    "blocks.*.feedforward.down": LAYER + "ffn_output",
    "blocks.*.feedforward_norm": LAYER + "full_layer_layer_norm",
}
MASKED_LM = head("masked_lm", masked_lm, "predictions.", **{**LM_HEAD, "norm": "LayerNorm"})
POOLER = "albert.pooler"
pooled = partial(bert.pooled, dropout="classifier_dropout_prob", otherwise=0.1)

FAMILY = Family(
    name="albert",
    stems={"albert": "Albert"},
    prefix="albert.",
    base=Config(
        vocabulary=30000,
        width=4096,
        attention_heads=64,
        feedforward=16384,
        embedding_width=128,
        project_embedding=True,
        activation="gelu_new",
        **NO_DROPOUT,
    ),
    keys={**bert.KEYS, "embedding_size": "embedding_width"},
    sizes={
        **{f"albert-{name}-v1": {**shape, **FIRST} for name, shape in SHAPES.items()},
        **{f"albert-{name}-v2": shape for name, shape in SHAPES.items()},
    },
    names=NAMES,
    heads=(
        replace(MASKED_LM, settings=TIED),
        untied(MASKED_LM),
        head("sentence_order", pooled(None), dense=POOLER, output="sop_classifier.classifier"),
        head("classify", pooled(None), dense=POOLER, output="classifier"),
        head("tag", bert.tokens(None, "classifier_dropout_prob", 0.1), output="classifier"),
        bert.ANSWER,
        head("choose", pooled(1), dense=POOLER, output="classifier"),
        head("pooler", undropped(pooled(0)), dense=POOLER),
    ),
    adjust=adjust,
    pretraining=("masked_lm", "sentence_order"),
    block_label=block_label,
)
