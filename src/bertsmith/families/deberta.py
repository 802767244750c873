"""DeBERTa v1: disentangled attention to content and relative position."""

from dataclasses import replace
from typing import Any

from bertsmith.families import bert
from bertsmith.families.bert import size
from bertsmith.families.family import Family, Names, Settings, Stacked, head, setting
from bertsmith.model import Config, Disentangled, HeadConfig

BASE = Config(vocabulary=50265, segments=0, norm_epsilon=1e-7, norm_after_projection=True)
PUBLISHED: dict[str, Any] = {
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["c2p", "p2c"],
}


def terms(settings: Settings) -> list[str]:
    """The position terms of attention: a list, or one string with bars."""
    kinds = settings.get("pos_att_type") or []
    return [k.strip() for k in kinds.lower().split("|")] if isinstance(kinds, str) else list(kinds)


def furthest(config: Config, settings: Settings) -> int:
    """The furthest distance that has a vector of its own."""
    most = int(setting(settings, "max_relative_positions", -1))
    return most if most > 0 else config.max_length


def embedded(config: Config, settings: Settings) -> Config:
    """Drop absolute positions and add a projection where config.json asks for them."""
    learned = setting(settings, "position_biased_input", True)
    return replace(
        config,
        positions=config.positions if learned else 0,
        project_embedding=config.token_width != config.width,
    )


def adjust(config: Config, settings: Settings) -> Config:
    """Relative attention with projections of its own, and no bias on keys."""
    kinds, span = terms(settings), furthest(config, settings)
    relative = Disentangled(span, keys="c2p" in kinds, queries="p2c" in kinds, key_bias=False)
    return replace(
        embedded(config, settings),
        signal=relative if settings.get("relative_attention") else None,
        scale_terms=1 + len(kinds),
        partial_bias=True,
    )


LAYER = "encoder.layer.*.attention.self."
NAMES: Names = {
    **bert.NAMES,
    "embedding.finish.projection": "embeddings.embed_proj",
    "signals.0.table": "encoder.rel_embeddings",
    "blocks.*.attention.qkv": Stacked((LAYER + "in_proj",), per_head=True),
    "blocks.*.attention.qkv.query_bias": LAYER + "q_bias",
    "blocks.*.attention.qkv.value_bias": LAYER + "v_bias",
    "blocks.*.attention.position_key": LAYER + "pos_proj",
    "blocks.*.attention.position_query": LAYER + "pos_q_proj",
}


def masked_lm(config: Config, settings: Settings) -> HeadConfig:
    """BERT's, always with the token table as output matrix."""
    return replace(bert.masked_lm(config, settings), tied=True)


def enhanced(config: Config, settings: Settings) -> HeadConfig:
    """Masked LM whose decoder alone sees absolute positions."""
    return replace(masked_lm(config, settings), enhanced=config.max_length)


def context(outputs: int | None) -> bert.HeadMaker:
    """The first state through DeBERTa's context pooler."""
    return lambda config, settings: bert.pooled(
        outputs, setting(settings, "pooler_hidden_act", "gelu"), "cls_dropout"
    )(config, settings)


PLAIN = head(
    "masked_lm",
    masked_lm,
    at="lm_predictions.lm_head.",
    dense="dense",
    norm="LayerNorm",
    bias="bias",
)
POSITIONS = {"positions": "deberta.embeddings.position_embeddings"}
NEW, OLD = {"legacy": False}, {"legacy": True}
HEADS = (
    # Masked LM is stored in three ways: as the authors do it, the same without the positions
    # that its decoder needs, and with the names of BERT's.
    replace(PLAIN, config=enhanced, names={**PLAIN.names, **POSITIONS}, settings=NEW),
    replace(PLAIN, settings=NEW),
    replace(bert.MASKED_LM, settings=OLD),
    head("classify", context(None), dense="pooler.dense", output="classifier"),
    bert.TAG,
    bert.ANSWER,
)

FAMILY = Family(
    name="deberta",
    stems={"deberta": "Deberta"},
    prefix="deberta.",
    base=BASE,
    keys={**bert.KEYS, "embedding_size": "embedding_width"},
    sizes={
        "deberta-base": size(768, 12, **PUBLISHED),
        "deberta-large": size(1024, 24, **PUBLISHED),
    },
    names=NAMES,
    heads=HEADS,
    adjust=adjust,
    refused={"talking_head": False},
)
