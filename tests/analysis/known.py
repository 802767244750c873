"""A model whose heads were made by hand, so that it is known what they do."""

from __future__ import annotations

from copy import copy

import torch

from bertsmith import Bert, create
from tasks.words import tokenizer

PREVIOUS, SEPARATOR, UNIFORM, ITSELF = range(4)
PLACES, STRENGTH = 40, 30.0


def known() -> Bert:
    """One layer, four heads: to the token before, to [SEP], to all alike, to the token itself.

    Each place has a direction of its own, [SEP] one more; queries are keys turned by one place.
    """
    words = copy(tokenizer("bert"))  # other tests use the same one
    words.max_length = None
    per_head = PLACES + 2
    settings = {
        "model_type": "bert",
        "vocab_size": words.size,
        "hidden_size": 4 * per_head,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 8,
        "max_position_embeddings": PLACES,
        "initializer_range": 0.0,
    }
    bert = Bert(create(settings), words)
    embedding = bert.model.encoder.embedding
    attention = bert.model.encoder.blocks[0].attention
    place = torch.arange(PLACES)
    with torch.no_grad():
        embedding.marks["position"].weight[place, place] = 1.0
        embedding.token.weight[words.sep_id, PLACES] = 1.0
        # What the norm makes of these is about ten times as large, less a little everywhere.
        query, key, _ = attention.qkv.weight.view(3, 4, per_head, -1)
        key[PREVIOUS, place, place] = key[ITSELF, place, place] = 1.0
        query[ITSELF, place, place] = STRENGTH
        query[PREVIOUS, place[:-1], place[1:]] = STRENGTH
        key[SEPARATOR, PLACES, PLACES] = 1.0
        attention.qkv.bias.view(3, 4, per_head)[0, SEPARATOR, PLACES] = 10 * STRENGTH
    return bert
