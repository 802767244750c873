"""Extend a model's vocabulary: new rows are the mean of the tokens that they replace."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith.checkpoint.assemble import substitute
from bertsmith.checkpoint.checkpoint import Checkpoint
from bertsmith.errors import BertsmithError


def extend_vocabulary(
    checkpoint: Checkpoint, pieces: Mapping[int, Sequence[int]], size: int
) -> Checkpoint:
    """Enlarge the token table of a model to at least `size` rows, in place.

    `pieces` lists for each new id the old ids that it is initialised from. Rows without a token are
    zero. The output matrix of masked LM and its bias grow alike.
    """
    model, old = checkpoint.model, checkpoint.config.vocabulary
    if any(number < 0 or number >= old for parts in pieces.values() for number in parts):
        raise BertsmithError("a new token is initialised from an id that the model does not have")
    rows = max(size, old)
    token: Any = model.encoder.embedding.token
    outputs: list[Any] = [head.output for head in model.heads.values()]
    others = {parameter: parameter for parameter in model.parameters()}
    for module in (token, *outputs):
        for parameter in module.parameters(recurse=False):
            if parameter.shape[0] == old and others[parameter] is parameter:
                others[parameter] = nn.Parameter(_grown(parameter.detach(), pieces, rows))
    substitute(model, others)
    token.num_embeddings = rows
    for output in outputs:
        if isinstance(output, nn.Linear) and output.out_features == old:
            output.out_features = rows
    return replace(checkpoint, settings={**checkpoint.settings, "vocab_size": rows})


def _grown(table: Tensor, pieces: Mapping[int, Sequence[int]], rows: int) -> Tensor:
    more = table.new_zeros(rows, *table.shape[1:])
    more[: len(table)] = table
    for number, parts in pieces.items():
        more[number] = table[torch.tensor(list(parts))].mean(0)
    return more
