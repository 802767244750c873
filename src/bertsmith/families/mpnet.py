"""MPNet: RoBERTa's positions and heads, and a learned bias for each relative distance."""

from dataclasses import replace

from bertsmith.families import bert, roberta
from bertsmith.families.bert import size
from bertsmith.families.family import Family, Names, Settings, stacked
from bertsmith.model import Config, DistanceBias

OFFSET = 2  # rows of the position table before place 0, whatever the padding id is


def adjust(config: Config, settings: Settings) -> Config:
    """Places are counted from row 2 of the position table."""
    return replace(config, max_length=config.positions - OFFSET)


LAYER = "encoder.layer.*."
NAMES: Names = {
    **bert.NAMES,
    "signals.0.table": "encoder.relative_attention_bias",
    "blocks.*.attention.qkv": stacked(LAYER + "attention.attn.", "q", "k", "v"),
    "blocks.*.attention.output": LAYER + "attention.attn.o",
    "blocks.*.attention_norm": LAYER + "attention.LayerNorm",
}

FAMILY = Family(
    name="mpnet",
    stems={"mpnet": "MPNet"},
    prefix="mpnet.",
    base=Config(
        vocabulary=30527,
        segments=0,
        position_offset=OFFSET,
        signal=DistanceBias(buckets=32, furthest=128),
        pad_id=1,
    ),
    keys={ours: field for ours, field in bert.KEYS.items() if ours != "type_vocab_size"},
    sizes={"mpnet-base": size(768, 12, max_position_embeddings=514, layer_norm_eps=1e-5)},
    names=NAMES,
    heads=roberta.heads("mpnet.pooler.dense"),
    adjust=adjust,
    # transformers always computes 32 buckets, whatever the size of the table.
    refused={"relative_attention_num_buckets": 32},
)
