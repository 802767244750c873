"""ModernBERT: rotary positions, local and global layers, gated feed-forward, pre-norm."""

from dataclasses import replace

from bertsmith.errors import BertsmithError
from bertsmith.families.bert import KEYS, HeadMaker, size
from bertsmith.families.family import NO_DROPOUT, Family, Names, Settings, head, labels, setting
from bertsmith.model import Config, HeadConfig, Rotary

# What each kind of layer is called, the older key of its rotary base, and that key's default.
KINDS = {
    "full_attention": ("global_rope_theta", 160_000.0),
    "sliding_attention": ("local_rope_theta", 10_000.0),
}


def rotary_theta(settings: Settings, rope: Settings | None, older: str, default: float) -> float:
    """The rotary base in `rope_parameters`, or under an older key of config.json."""
    scaling = (rope or {}).get("rope_type", "default")
    if scaling != "default" or settings.get("rope_scaling"):
        raise BertsmithError(f"config.json: rotary scaling {scaling!r} is not supported")
    return float((rope or {}).get("rope_theta", setting(settings, older, default)))


def rotary_base(settings: Settings, kind: str) -> float:
    """The rotary base of a kind of layer."""
    rope: Settings | None = (settings.get("rope_parameters") or {}).get(kind)
    return rotary_theta(settings, rope, *KINDS[kind])


def adjust(config: Config, settings: Settings) -> Config:
    """Every third layer, or those that layer_types says, sees all; the others a window."""
    every = setting(settings, "global_attn_every_n_layers", 3)
    kinds = settings.get("layer_types") or [
        "sliding_attention" if depth % every else "full_attention" for depth in range(config.layers)
    ]
    if len(kinds) != config.layers or not set(kinds) <= set(KINDS):
        raise BertsmithError(f"config.json: layer_types must name {config.layers} layers")
    half = setting(settings, "local_attention", 128) // 2
    if not isinstance(half, int) or half < 0:
        raise BertsmithError(f"config.json: local_attention is not a valid width ({2 * half})")
    return replace(
        config,
        signal=Rotary(tuple(rotary_base(settings, kind) for kind in kinds)),
        windows=tuple(half if kind == "sliding_attention" else None for kind in kinds),
    )


def transformed(outputs: int | None, pooled: bool = False) -> HeadMaker:
    """Dense, activation, norm, outputs: the same transform before every kind of output."""

    def make(config: Config, settings: Settings) -> HeadConfig:
        pool = setting(settings, "classifier_pooling", "cls").replace("cls", "first")
        return HeadConfig(
            labels(settings) if outputs is None else outputs,
            pool if pooled else "every",
            config.width,
            dense_bias=setting(settings, "classifier_bias", False),
            activation=setting(settings, "classifier_activation", "gelu"),
            norm=True,
            dropout=setting(settings, "classifier_dropout", 0.0),
        )

    return make


def masked_lm(config: Config, settings: Settings) -> HeadConfig:
    """The transform and the token table as output matrix."""
    bias = setting(settings, "decoder_bias", True)
    tied = setting(settings, "tie_word_embeddings", True)
    return replace(
        transformed(config.vocabulary)(config, settings), bias=bias, tied=tied, dropout=0.0
    )


NAMES: Names = {
    "embedding.token": "embeddings.tok_embeddings",
    "embedding.finish.norm": "embeddings.norm",
    "blocks.*.attention_norm": "layers.*.attn_norm",
    "blocks.*.attention.qkv": "layers.*.attn.Wqkv",
    "blocks.*.attention.output": "layers.*.attn.Wo",
    "blocks.*.feedforward_norm": "layers.*.mlp_norm",
    "blocks.*.feedforward.up": "layers.*.mlp.Wi",
    "blocks.*.feedforward.down": "layers.*.mlp.Wo",
    "norm": "final_norm",
}
HEAD = {"dense": "head.dense", "norm": "head.norm"}
CLASSIFIER = {**HEAD, "output": "classifier"}

FAMILY = Family(
    name="modernbert",
    stems={"modernbert": "ModernBert"},
    prefix="model.",
    base=Config(
        vocabulary=50368,
        layers=22,
        feedforward=1152,
        max_length=8192,
        segments=0,
        positions=0,
        attention_bias=False,
        feedforward_bias=False,
        gated=True,
        pre_norm=True,
        norm_epsilon=1e-5,
        norm_bias=False,
        **NO_DROPOUT,
        pad_id=50283,
    ),
    keys={
        **KEYS,
        "hidden_activation": "activation",
        "max_position_embeddings": "max_length",
        "norm_eps": "norm_epsilon",
        "norm_bias": "norm_bias",
        "attention_bias": "attention_bias",
        "mlp_bias": "feedforward_bias",
        "embedding_dropout": "embedding_dropout",
        "attention_dropout": "attention_dropout attention_output_dropout",
        "mlp_dropout": "feedforward_inner_dropout",
    },
    sizes={
        "modernbert-base": size(768, 22, inner=1152),
        "modernbert-large": size(1024, 28, inner=2624),
    },
    names=NAMES,
    heads=(
        head("masked_lm", masked_lm, **HEAD, bias="decoder.bias", decoder="decoder.weight"),
        head("classify", transformed(None, pooled=True), **CLASSIFIER),
        head("tag", transformed(None), **CLASSIFIER),
        head("answer", transformed(2), **CLASSIFIER),
        head("choose", transformed(1, pooled=True), **CLASSIFIER),
    ),
    adjust=adjust,
    linear_head={"classifier_activation": "linear", "classifier_pooling": "mean"},
)
