"""The final hidden state of every token, as a task of encoder passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from bertsmith.batch import Batch
from bertsmith.infer.loaded import EncoderTask, LoadedModel
from bertsmith.infer.run import EncoderPass, Steps
from bertsmith.infer.windows import Window, clearest
from bertsmith.model import Hidden, Model
from bertsmith.tasks.embedding import Vectors


class TokenVectors(NamedTuple):
    """A row for every token of a text, special tokens included."""

    spans: list[tuple[int, int]]  # characters of each token; empty for special tokens
    special: list[bool]
    vectors: Vectors  # (tokens, D)


@EncoderTask
def token_vectors(bert: LoadedModel, texts: Sequence[str]) -> Steps[list[TokenVectors]]:
    """Every token's state, read in the window in which it has most context.

    Special tokens come from the first and the last window.
    """
    windower = bert.windower()
    encoded = bert.encode(texts)
    grouped = [windower.single(number, one.ids) for number, one in enumerate(encoded)]

    def compute(_: Model, hidden: Hidden, batch: Batch, __: Sequence[Window]) -> list[torch.Tensor]:
        return list(batch.layout.split(hidden.last.float().cpu()))

    windows = [window for group in grouped for window in group]
    states = iter((yield EncoderPass(windows, compute, "tokens")))
    results = []
    for encoding, group, text in zip(encoded, grouped, texts, strict=True):
        own = [next(states) for _ in group]
        read = range(group[0].tokens.start, group[-1].tokens.stop)
        best = clearest([window.tokens for window in group], len(encoding))
        rows = [
            own[best[token]][group[best[token]].first + token - group[best[token]].tokens.start]
            for token in read
        ]
        before = list(own[0][: group[0].first])
        after = list(own[-1][group[-1].first + len(group[-1].tokens) :])
        spans = [
            *[(0, 0)] * len(before),
            *(encoding.offsets[token] for token in read),
            *[(len(text), len(text))] * len(after),
        ]
        special = [True] * len(before) + [False] * len(rows) + [True] * len(after)
        vectors = torch.stack([*before, *rows, *after]).numpy()
        results.append(TokenVectors(spans, special, vectors))
    return results
