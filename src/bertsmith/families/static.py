"""Static vectors: one vector for each token, independent of context; no layers."""

from functools import partial

from bertsmith.families import bert
from bertsmith.families.family import NO_DROPOUT, Family, Settings, head, labels
from bertsmith.model import Config, HeadConfig


def pooled(config: Config, settings: Settings, outputs: int = 0) -> HeadConfig:
    """The mean vector of a text through a dense layer; one output for each label by default."""
    return HeadConfig(outputs or labels(settings), "mean", config.width, activation="relu")


FAMILY = Family(
    name="static",
    stems={"static": "Static"},
    prefix="",
    base=Config(
        width=256,
        layers=0,
        attention_heads=1,
        feedforward=1,
        max_length=8192,
        **{"segments": 0, "positions": 0, "embedding_norm": False, **NO_DROPOUT},
    ),
    keys={"vocab_size": "vocabulary", "hidden_size": "width", "pad_token_id": "pad_id"},
    sizes={},
    names={"embedding.token": "embedding"},
    heads=(
        head("classify", pooled, "classifier.", dense="dense", output="out_proj"),
        bert.TAG,
        head("choose", partial(pooled, outputs=1), "classifier.", dense="dense", output="out_proj"),
    ),
)
