"""Every family at toy size, with weights large enough for each part to matter."""

from __future__ import annotations

from typing import Any

import torch

from bertsmith.batch import Batch
from bertsmith.checkpoint import create
from bertsmith.families import family_of
from bertsmith.model import Model

SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "initializer_range": 0.15,
}
RELATIVE = {
    **SIZES,
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": "c2p|p2c",
}
SECOND = {
    **RELATIVE,
    "model_type": "deberta-v2",
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
}
TINY: dict[str, dict[str, Any]] = {
    "bert": {**SIZES, "model_type": "bert"},
    "roberta": {**SIZES, "model_type": "roberta"},
    "albert": {**SIZES, "model_type": "albert", "embedding_size": 16, "num_hidden_groups": 2},
    "distilbert": {
        "model_type": "distilbert",
        "vocab_size": 50,
        "dim": 32,
        "n_layers": 3,
        "n_heads": 4,
        "hidden_dim": 48,
        "initializer_range": 0.15,
    },
    "electra": {**SIZES, "model_type": "electra", "embedding_size": 16},
    "deberta": {**RELATIVE, "model_type": "deberta"},
    "deberta-v2, own projections": SECOND,
    "deberta-v3, shared, convolved": {**SECOND, "share_att_key": True, "conv_kernel_size": 5},
    "modernbert": {
        **SIZES,
        "model_type": "modernbert",
        "local_attention": 6,
        "num_hidden_layers": 4,
        "classifier_pooling": "mean",
    },
    "mpnet": {**SIZES, "model_type": "mpnet"},
    "nomic_bert": {**SIZES, "model_type": "nomic_bert"},
}


def tiny(name: str, seed: int = 0, **changes: Any) -> Model:
    """A toy model of a family with every kind of head it has; no weight is 0 or 1."""
    settings = {**TINY[name], **changes}
    heads = dict.fromkeys(entry.kind for entry in family_of(settings).heads)
    model = create(settings, heads=heads, seed=seed).model
    random = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += 0.1 * torch.randn(len(parameter), generator=random)
    return model


def ragged(lengths: list[int], seed: int = 0) -> Batch:
    """Random ids; the second half of each sequence is the second segment."""
    random = torch.Generator().manual_seed(seed)
    ids = [torch.randint(0, 50, (n,), generator=random).tolist() for n in lengths]
    return Batch.of(ids, [[int(2 * place > n) for place in range(n)] for n in lengths])


def alone(batch: Batch) -> list[Batch]:
    """Each sequence of a batch in a batch of its own."""
    pairs = zip(batch.layout.split(batch.ids), batch.layout.split(batch.segments), strict=True)
    return [Batch.of([ids.tolist()], [segments.tolist()]) for ids, segments in pairs]


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest absolute difference of two finite tensors of one shape."""
    assert ours.shape == theirs.shape
    assert ours.isfinite().all()
    return float((ours - theirs).detach().abs().max())
