"""Tiny models of every family with fresh weights, and tokenizers learned from a few lines."""

from __future__ import annotations

from typing import Any

import torch

from bertsmith import Bert
from bertsmith.checkpoint import Sentence, create
from tasks.words import tokenizer

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
}
RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
DISTIL = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 128}
# Every choice that a Config has: positions, norms, gates, windows, sharing, projections.
MODELS: dict[str, dict[str, Any]] = {
    "bert": SMALL,
    "roberta": {**SMALL, "max_position_embeddings": 130, "type_vocab_size": 1},
    "albert": {**SMALL, "embedding_size": 16, "hidden_act": "gelu_new"},
    "distilbert": DISTIL,
    "electra": {**SMALL, "embedding_size": 16},
    "deberta": {**SMALL, **RELATIVE, "position_biased_input": False},
    "deberta-v2": {
        **SMALL,
        **RELATIVE,
        "position_biased_input": False,
        "position_buckets": 8,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "conv_kernel_size": 3,
    },
    "modernbert": {**SMALL, "local_attention": 8, "global_attn_every_n_layers": 2},
    "mpnet": {**SMALL, "max_position_embeddings": 130},
    "nomic_bert": SMALL,
}


def tiny(family: str, *heads: str, deviation: float = 0.2, **settings: Any) -> Bert:
    """A model of a family, its weights large enough for differences to show."""
    words = tokenizer(family)
    chosen = {"model_type": family, "vocab_size": words.size, **MODELS[family], **settings}
    chosen["initializer_range"] = deviation
    checkpoint = create(chosen, heads=heads or ("masked_lm",))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in checkpoint.model.parameters():  # biases and norms too
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return Bert(checkpoint, words, sentence=Sentence())
