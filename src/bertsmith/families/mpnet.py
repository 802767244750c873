"""MPNet: RoBERTa's positions and heads, and a learned bias for each relative distance."""

from dataclasses import replace

from bertsmith.families import bert, roberta
from bertsmith.families.bert import pooled, size, undropped
from bertsmith.families.family import TIED, Family, Names, Settings, head, stacked, untied
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
POOLER = "mpnet.pooler.dense"

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
    heads=(
        replace(roberta.MASKED_LM, settings=TIED),
        untied(roberta.MASKED_LM),
        head("classify", pooled(None), "classifier.", dense="dense", output="out_proj"),
        bert.TAG,
        bert.ANSWER,
        head("choose", pooled(1), dense=POOLER, output="classifier"),
        head("pooler", undropped(pooled(0)), dense=POOLER),
    ),
    adjust=adjust,
    # transformers always computes 32 buckets, whatever the size of the table.
    refused={"relative_attention_num_buckets": 32},
)
