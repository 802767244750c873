"""BERT: every published size, and multilingual BERT."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bertsmith.families.family import (
    TIED,
    Family,
    Names,
    Settings,
    head,
    labels,
    setting,
    stacked,
    untied,
)
from bertsmith.model import Config, HeadConfig

HeadMaker = Callable[[Config, Settings], HeadConfig]


def size(width: int, layers: int, heads: int = 0, inner: int = 0, **more: Any) -> Settings:
    """The settings in which published sizes differ."""
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads or width // 64,
        "intermediate_size": inner or 4 * width,
        **more,
    }


KEYS = {
    "vocab_size": "vocabulary",
    "hidden_size": "width",
    "num_hidden_layers": "layers",
    "num_attention_heads": "attention_heads",
    "intermediate_size": "feedforward",
    "hidden_act": "activation",
    "hidden_dropout_prob": "embedding_dropout attention_output_dropout feedforward_output_dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "max_position_embeddings": "positions max_length",
    "type_vocab_size": "segments",
    "initializer_range": "initial_deviation",
    "layer_norm_eps": "norm_epsilon",
    "pad_token_id": "pad_id",
}

EMBEDDING: Names = {
    "embedding.token": "embeddings.word_embeddings",
    "embedding.marks.position": "embeddings.position_embeddings",
    "embedding.marks.segment": "embeddings.token_type_embeddings",
    "embedding.finish.norm": "embeddings.LayerNorm",
}
LAYER = "encoder.layer.*."
NAMES: Names = {
    **EMBEDDING,
    "blocks.*.attention.qkv": stacked(LAYER + "attention.self.", "query", "key", "value"),
    "blocks.*.attention.output": LAYER + "attention.output.dense",
    "blocks.*.attention_norm": LAYER + "attention.output.LayerNorm",
    "blocks.*.feedforward.up": LAYER + "intermediate.dense",
    "blocks.*.feedforward.down": LAYER + "output.dense",
    "blocks.*.feedforward_norm": LAYER + "output.LayerNorm",
}


def masked_lm(config: Config, settings: Settings, activation: str = "") -> HeadConfig:
    """Dense, activation, norm, and the token table as output matrix."""
    tied, act = setting(settings, "tie_word_embeddings", True), activation or config.activation
    width = config.token_width
    return HeadConfig(config.vocabulary, dense=width, activation=act, norm=True, tied=tied)


def dropped(config: Config, settings: Settings, key: str, otherwise: float | None) -> float:
    """A head's dropout: what its key says, else the family's default, else the encoder's."""
    default = config.feedforward_output_dropout if otherwise is None else otherwise
    return setting(settings, key, default)


def pooled(
    outputs: int | None,
    activation: str = "tanh",
    dropout: str = "classifier_dropout",
    otherwise: float | None = None,
) -> HeadMaker:
    """The first state through a dense layer, then so many outputs (None: one for each label)."""

    def make(config: Config, settings: Settings) -> HeadConfig:
        count = labels(settings) if outputs is None else outputs
        rate = dropped(config, settings, dropout, otherwise)
        return HeadConfig(count, "first", config.width, activation=activation, dropout=rate)

    return make


def undropped(make: HeadMaker) -> HeadMaker:
    """The same head with no dropout of its own."""
    return lambda config, settings: replace(make(config, settings), dropout=0.0)


def tokens(
    outputs: int | None, dropout: str = "classifier_dropout", otherwise: float | None = None
) -> HeadMaker:
    """So many outputs for every token (None: one for each label), straight from its state."""

    def make(config: Config, settings: Settings) -> HeadConfig:
        rate = dropped(config, settings, dropout, otherwise)
        return HeadConfig(labels(settings) if outputs is None else outputs, dropout=rate)

    return make


TAG = head("tag", tokens(None), output="classifier")
ANSWER = head("answer", lambda config, settings: HeadConfig(2), output="qa_outputs")
MASKED_LM = head(
    "masked_lm",
    masked_lm,
    at="cls.predictions.",
    dense="transform.dense",
    norm="transform.LayerNorm",
    bias="bias",
    decoder="decoder.weight",
)
POOLER = "bert.pooler.dense"

FAMILY = Family(
    name="bert",
    stems={"bert": "Bert"},
    prefix="bert.",
    base=Config(),
    keys=KEYS,
    sizes={
        "bert-tiny": size(128, 2),
        "bert-mini": size(256, 4),
        "bert-small": size(512, 4),
        "bert-medium": size(512, 8),
        "bert-base-uncased": size(768, 12),
        "bert-base-cased": size(768, 12, vocab_size=28996),
        "bert-large-uncased": size(1024, 24),
        "bert-large-cased": size(1024, 24, vocab_size=28996),
        "bert-base-multilingual-cased": size(768, 12, vocab_size=119547),
        "bert-base-multilingual-uncased": size(768, 12, vocab_size=105879),
        "bert-base-chinese": size(768, 12, vocab_size=21128),
    },
    names=NAMES,
    heads=(
        replace(MASKED_LM, settings=TIED),
        untied(MASKED_LM),
        head("next_sentence", undropped(pooled(2)), dense=POOLER, output="cls.seq_relationship"),
        head("classify", pooled(None), dense=POOLER, output="classifier"),
        TAG,
        ANSWER,
        head("choose", pooled(1), dense=POOLER, output="classifier"),
        head("pooler", undropped(pooled(0)), dense=POOLER),
    ),
    pretraining=("masked_lm", "next_sentence"),
    refused={
        "add_cross_attention": False,
        "position_embedding_type": "absolute",
    },
)
