"""RoBERTa (also XLM-RoBERTa and CamemBERT): BERT with positions offset by two."""

from dataclasses import replace
from functools import partial
from typing import Any

from bertsmith.families import bert
from bertsmith.families.bert import masked_lm, pooled, size, undropped
from bertsmith.families.family import TIED, Family, HeadEntry, Settings, head, untied
from bertsmith.model import Config

PUBLISHED: dict[str, Any] = {
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}


def adjust(config: Config, settings: Settings) -> Config:
    """Place 0 is the row after the padding id's."""
    offset = config.pad_id + 1
    return replace(config, position_offset=offset, max_length=config.positions - offset)


LM_HEAD = {"dense": "dense", "norm": "layer_norm", "bias": "bias", "decoder": "decoder.weight"}
# The head's activation is fixed, whatever the blocks use.
MASKED_LM = head("masked_lm", partial(masked_lm, activation="gelu"), "lm_head.", **LM_HEAD)


def heads(pooler: str) -> tuple[HeadEntry, ...]:
    """The heads of RoBERTa; `pooler` is where its dense layer is stored."""
    return (
        replace(MASKED_LM, settings=TIED),
        untied(MASKED_LM),
        head("classify", pooled(None), "classifier.", dense="dense", output="out_proj"),
        bert.TAG,
        bert.ANSWER,
        head("choose", pooled(1), dense=pooler, output="classifier"),
        head("pooler", undropped(pooled(0)), dense=pooler),
    )


FAMILY = Family(
    name="roberta",
    stems={"roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"},
    prefix="roberta.",
    base=Config(vocabulary=50265, pad_id=1),
    keys=bert.KEYS,
    sizes={
        "roberta-base": size(768, 12, **PUBLISHED),
        "roberta-large": size(1024, 24, **PUBLISHED),
    },
    names=bert.NAMES,
    heads=heads("roberta.pooler.dense"),
    adjust=adjust,
    refused=bert.FAMILY.refused,
)
