"""NomicBERT: BERT with rotary positions and a gated feed-forward, without biases in its blocks."""

from dataclasses import replace

from bertsmith.families import bert
from bertsmith.families.bert import pooled, size, undropped
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
from bertsmith.families.modernbert import rotary_theta
from bertsmith.model import Config, Rotary


def adjust(config: Config, settings: Settings) -> Config:
    """One rotary base for all layers; no longer texts than the model was trained on."""
    theta = rotary_theta(settings, settings.get("rope_parameters"), "rotary_emb_base", 1000.0)
    longest = min(config.max_length, setting(settings, "max_trained_positions", config.max_length))
    return replace(
        config,
        signal=Rotary((theta,) * config.layers),
        max_length=longest,
        head_width=setting(settings, "head_dim", config.per_head),
    )


LAYER = "encoder.layers.*."
NAMES: Names = {
    "embedding.token": "embeddings.word_embeddings",
    "embedding.marks.segment": "embeddings.token_type_embeddings",
    "embedding.finish.norm": "emb_ln",
    "blocks.*.attention.qkv": LAYER + "attn.Wqkv",
    "blocks.*.attention.output": LAYER + "attn.out_proj",
    "blocks.*.attention_norm": LAYER + "norm1",
    "blocks.*.feedforward.up": stacked(LAYER + "mlp.", "fc12", "fc11"),  # the gate comes first
    "blocks.*.feedforward.down": LAYER + "mlp.fc2",
    "blocks.*.feedforward_norm": LAYER + "norm2",
}
MASKED_LM = replace(
    bert.MASKED_LM,
    names={**bert.MASKED_LM.names, "transform.norm": "cls.predictions.transform.layer_norm"},
)
POOLER = "nomic_bert.pooler.dense"

FAMILY = Family(
    name="nomic_bert",
    stems={"nomic_bert": "NomicBert"},
    prefix="nomic_bert.",
    base=Config(
        vocabulary=30528,
        max_length=2048,
        positions=0,
        attention_bias=False,
        feedforward_bias=False,
        gated=True,
        activation="silu",
        **NO_DROPOUT,
    ),
    # The second name of a size is that of its authors' files.
    keys={
        **bert.KEYS,
        "max_position_embeddings": "max_length",
        "n_embd": "width",
        "n_layer": "layers",
        "n_head": "attention_heads",
        "n_inner": "feedforward",
        "n_positions": "max_length",
        "layer_norm_epsilon": "norm_epsilon",
    },
    sizes={"nomic-bert-2048": size(768, 12)},
    names=NAMES,
    heads=(
        replace(MASKED_LM, settings=TIED),
        untied(MASKED_LM),
        head("classify", pooled(None), dense=POOLER, output="classifier"),
        bert.TAG,
        head("pooler", undropped(pooled(0)), dense=POOLER),
    ),
    adjust=adjust,
    refused={
        "activation_function": "swiglu",
        "prenorm": False,
        "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False,
        "use_rms_norm": False,
        "qkv_proj_bias": False,
        "mlp_fc1_bias": False,
        "moe_every_n_layers": 0,
    },
)
