"""ELECTRA: BERT with factorised embeddings; a generator and a discriminator."""

from dataclasses import replace
from functools import partial

from bertsmith.families import bert
from bertsmith.families.bert import masked_lm, pooled, size
from bertsmith.families.family import Family, Settings, head
from bertsmith.model import Config, HeadConfig


def adjust(config: Config, settings: Settings) -> Config:
    """Embeddings are projected only where the widths differ."""
    return replace(config, project_embedding=config.embedding_width != config.width)


def replaced(config: Config, settings: Settings) -> HeadConfig:
    """Was this token replaced? Dense, activation, one output."""
    return HeadConfig(1, dense=config.width, activation=config.activation)


def choose(config: Config, settings: Settings) -> HeadConfig:
    """The first state through a summary layer whose activation config.json names."""
    return replace(
        pooled(1, settings.get("summary_activation", "gelu") or "linear")(config, settings),
        dropout=settings.get("summary_last_dropout", 0.1),
    )


RTD = "discriminator_predictions."

FAMILY = Family(
    name="electra",
    stems={"electra": "Electra"},
    prefix="electra.",
    base=Config(width=256, attention_heads=4, feedforward=1024, embedding_width=128),
    keys={**bert.KEYS, "embedding_size": "embedding_width"},
    sizes={
        "electra-small": size(256, 12),
        "electra-base": size(768, 12, embedding_size=768),
        "electra-large": size(1024, 24, embedding_size=1024),
        "electra-small-generator": size(256, 12, embedding_size=128),
        "electra-base-generator": size(256, 12, embedding_size=768),
        "electra-large-generator": size(256, 24, embedding_size=1024),
    },
    names={**bert.NAMES, "embedding.finish.projection": "embeddings_project"},
    heads=(
        head(
            "masked_lm",
            partial(masked_lm, activation="gelu"),  # fixed, whatever the blocks use
            dense="generator_predictions.dense",
            norm="generator_predictions.LayerNorm",
            bias="generator_lm_head.bias",
            decoder="generator_lm_head.weight",
        ),
        head("replaced", replaced, RTD, dense="dense", output="dense_prediction"),
        head("classify", pooled(None, "gelu"), "classifier.", dense="dense", output="out_proj"),
        bert.TAG,
        bert.ANSWER,
        head("choose", choose, dense="sequence_summary.summary", output="classifier"),
    ),
    adjust=adjust,
    pretraining=("replaced",),
    refused={**bert.FAMILY.refused, "summary_type": "first", "summary_use_proj": True},
)
