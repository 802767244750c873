"""An encoder → static vectors: one vector for each token of its vocabulary, without any data."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.batch import Batch
from bertsmith.checkpoint import Sentence, create
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.windows import Window
from bertsmith.model import Hidden, Model
from bertsmith.model.pooling import POOLS
from bertsmith.numbers import real_number, whole_number
from bertsmith.settings.distilling import DistillationSettings

Array = NDArray[np.float64]

WIDTH = 256  # dimensions that are kept by default
# A table of vectors learns with a higher learning rate than an encoder; `finetune` reads this.
FINETUNE = {"learning_rate": 0.005, "layer_decay": 1.0, "epochs": 5}


@dataclass(frozen=True)
class Projection:
    """Principal components: centre (D,) and directions (D, d), by falling variance."""

    centre: Array
    directions: Array
    explained: float  # share of the variance that is kept

    def __call__(self, vectors: NDArray[Any], centre: Array | None = None) -> Array:
        """Vectors (N, D) → (N, d), from their own centre if one is given."""
        shifted = vectors - (self.centre if centre is None else centre)
        return shifted.astype(np.float64) @ self.directions


def to_static(
    teacher: LoadedModel,
    *,
    width: int = WIDTH,
    smoothing: float = DistillationSettings.smoothing,
    frequencies: NDArray[Any] | None = None,
) -> tuple[LoadedModel, Projection]:
    """Turn an encoder into static vectors, which take the mean over the tokens of a text.

    Every entry of the vocabulary is encoded alone; the vectors are reduced to `width` principal
    components and weighted by smooth inverse frequency. `frequencies` counts the tokens of real
    text; without it the rank in the vocabulary stands for the frequency (Zipf's law). Special
    tokens get zeros. Also returns the projection to the principal components.
    """
    if not teacher.model.encoder.plan:
        raise BertsmithError("the teacher consists of static vectors already")
    special = sorted(teacher.tokenizer.special_ids)
    plain = np.setdiff1d(np.arange(teacher.tokenizer.size), special)
    width = whole_number(width, "width", 1, min(teacher.vector_width, len(plain) - 1))
    smoothing = real_number(smoothing, "smoothing", 1e-12, 1e6)
    vectors = token_vectors(teacher)
    projection = principal_components(vectors[plain], width)
    table = np.zeros((teacher.checkpoint.config.vocabulary, width))
    weights = smooth_inverse_frequency(plain, frequencies, smoothing)
    table[plain] = projection(vectors[plain]) * weights[:, None]
    settings = {"model_type": "static", "vocab_size": len(table), "hidden_size": width}
    checkpoint = create({**settings, "pad_token_id": teacher.tokenizer.pad_id or 0}, heads=())
    with torch.no_grad():
        checkpoint.model.encoder.table.copy_(torch.from_numpy(table))
    checkpoint = replace(checkpoint, notes={"finetune": dict(FINETUNE)})
    checkpoint.model.to(teacher.device)
    tokenizer = teacher.tokenizer.unmarked(teacher.sentence.lowercase)
    return LoadedModel(checkpoint, tokenizer, sentence=Sentence(normalise=True)), projection


def token_vectors(teacher: LoadedModel) -> NDArray[np.float32]:
    """The vector of every token of the vocabulary, read alone as a text (V, D)."""
    pool = POOLS[teacher.sentence.pool]
    tokens, build = range(teacher.tokenizer.size), teacher.tokenizer.build
    windows = [Window(number, *build([number]), range(1), 0) for number in tokens]

    def compute(_: Model, hidden: Hidden, batch: Batch, __: Sequence[Window]) -> list[torch.Tensor]:
        return list(teacher.sentence.project(pool(hidden.last.float(), batch.layout, None).cpu()))

    return torch.stack(teacher.run(windows, compute)).numpy()


def principal_components(vectors: NDArray[Any], width: int) -> Projection:
    """The `width` directions of most variance; their signs are fixed, so that results repeat."""
    centre = vectors.mean(0, dtype=np.float64)
    shifted = vectors - centre
    values, directions = np.linalg.eigh(shifted.T @ shifted)
    order = np.argsort(values)[::-1][:width]
    chosen = directions[:, order]
    largest = chosen[np.abs(chosen).argmax(0), np.arange(width)]
    share = float(values[order].sum() / max(values.sum(), 1e-300))
    return Projection(centre, chosen * np.where(largest < 0, -1.0, 1.0), share)


def smooth_inverse_frequency(
    tokens: NDArray[Any], frequencies: NDArray[Any] | None, smoothing: float
) -> Array:
    """Weights a / (a + p) of tokens (Arora et al. 2017); p is by counts, or by Zipf's law."""
    if frequencies is None:
        counts = 1.0 / (np.arange(len(tokens), dtype=np.float64) + 2.0)
    else:
        counts = frequencies[tokens].astype(np.float64) + 1.0
    return smoothing / (smoothing + counts / counts.sum())


def token_frequencies(teacher: LoadedModel, texts: Iterable[str]) -> NDArray[np.int64]:
    """How often each token occurs in texts (V,)."""
    counts = np.zeros(teacher.tokenizer.size, dtype=np.int64)
    for ids in teacher.tokenizer.encode_ids(list(texts)):
        np.add.at(counts, ids, 1)
    return counts
