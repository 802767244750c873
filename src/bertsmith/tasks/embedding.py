"""One vector for each text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import EncoderTask, LoadedModel
from bertsmith.infer.run import EncoderPass, Steps
from bertsmith.infer.windows import Window
from bertsmith.model import Hidden
from bertsmith.model.pooling import POOLS

Vectors = np.ndarray[Any, np.dtype[np.float32]]
NAMES = {"mean": "mean", "cls": "first"}


@EncoderTask
def embed(
    bert: LoadedModel,
    texts: Sequence[str],
    pooling: str | None = None,
    normalise: bool | None = None,
    long: str | None = None,
    prompt: str | None = None,
) -> Steps[Vectors]:
    """Texts → float32 (N, D). A long text's vector is the mean of its windows', by length.

    `prompt` is put before each text; None: the model's default prompt.
    """
    made = bert.sentence
    if pooling is not None and pooling not in NAMES:
        raise BertsmithError(f"unknown pooling {pooling!r}; known: {', '.join(NAMES)}")
    pool = POOLS[NAMES[pooling] if pooling else made.pool]
    prepared = [made.prepared(text, prompt) for text in texts]
    windows = bert.windows(prepared, how=bert.windower(long, overlap=0, limit=made.max_length))

    def compute(hidden: Hidden, batch: Batch, _: Sequence[Window]) -> list[torch.Tensor]:
        return list(pool(hidden.last.float(), batch.layout, None).cpu())

    width = bert.checkpoint.config.width
    total = np.zeros((len(texts), width), dtype=np.float32)
    weight = np.zeros((len(texts), 1), dtype=np.float32)
    pooled = yield EncoderPass(windows, compute, ("embed", pool))
    for window, vector in zip(windows, pooled, strict=True):
        total[window.number] += vector.numpy() * len(window.ids)
        weight[window.number] += len(window.ids)
    vectors: Vectors = np.divide(total, np.maximum(weight, 1), dtype=np.float32)
    if made.dense:
        vectors = made.project(torch.from_numpy(vectors)).numpy()
    if made.normalise if normalise is None else normalise:
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
    return vectors
