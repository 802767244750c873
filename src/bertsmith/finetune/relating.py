"""Learning vectors: texts that belong together are near, or as near as a number says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.data import Dataset, Related
from bertsmith.errors import BertsmithError
from bertsmith.finetune.labelling import weights_of
from bertsmith.finetune.lesson import Lesson
from bertsmith.finetune.losses import choice_loss
from bertsmith.finetune.pieces import Piece, Sample
from bertsmith.finetune.settings import Settings
from bertsmith.model import Model
from bertsmith.model.pooling import POOLS
from bertsmith.tasks.loaded import LoadedModel


class Vectors(Lesson):
    """What both ways share: one vector for each text, of a long one the mean of its windows'."""

    head = None

    def __init__(self, dataset: Dataset[Any], settings: Settings) -> None:
        super().__init__(dataset, settings)
        if settings.class_weights:
            raise BertsmithError("class weights are for labels; similarities have none")
        self.pool = "mean"

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """A piece with the texts of each example."""
        self.pool = bert.sentence.pool
        limit = self.settings.max_length or bert.sentence.max_length
        how = bert.windower(overlap=0, limit=limit)
        made: list[Sample] = []
        for example in examples:
            texts = [bert.sentence.prepared(text) for text in example.texts]
            made.append((Piece(tuple(bert.windows(texts, how=how)), self.target(example)),))
        return made

    def target(self, example: Any) -> Any:
        """What is to be learned of an example's texts."""
        raise NotImplementedError

    def outputs(self, model: Model, batch: Batch) -> Tensor:
        """A vector for each window (N, D)."""
        return POOLS[self.pool](model.encoder(batch).last.float(), batch.layout, None)

    def texts(self, outputs: Tensor, pieces: Sequence[Piece]) -> list[Tensor]:
        """For each piece its texts' vectors, of length 1 (texts, D)."""
        counts = [piece.windows[-1].number + 1 for piece in pieces]
        owners, sizes, before = [], [], 0
        for count, piece in zip(counts, pieces, strict=True):
            owners += [before + window.number for window in piece.windows]
            sizes += [float(len(window.ids)) for window in piece.windows]
            before += count
        place, weight = (torch.tensor(one, device=outputs.device) for one in (owners, sizes))
        sums = outputs.new_zeros(before, outputs.shape[1])
        # By length, as they are put together when the model is used; the sum's own length is
        # of no matter.
        sums = sums.index_add(0, place, outputs * weight[:, None])
        return list(F.normalize(sums, dim=-1).split(counts))


class Contrast(Vectors):
    """Of all second texts in a step each first text is to find its own."""

    together = True

    def target(self, example: Related) -> None:
        """That they belong together is all there is to know."""

    def loss(self, outputs: Tensor, batch: Batch, pieces: Sequence[Piece]) -> Tensor:
        """Cross entropy of similarities, in both directions; negatives compete in the first."""
        groups = self.texts(outputs, pieces)
        firsts = torch.stack([group[0] for group in groups])
        others = torch.stack([group[1] for group in groups])
        worse = [group[2] for group in groups if len(group) > 2]
        scores = firsts @ torch.cat([others, *(one[None] for one in worse)]).T
        own = torch.arange(len(pieces), device=outputs.device)
        scale = self.settings.temperature
        there = choice_loss(scores / scale, own)
        back = choice_loss((others @ firsts.T) / scale, own)
        return ((there + back) / 2 * weights_of(pieces, outputs)).sum()


class Cosine(Vectors):
    """The cosine of two texts' vectors is to be their score, brought to 0 to 1."""

    def __init__(self, dataset: Dataset[Any], settings: Settings) -> None:
        super().__init__(dataset, settings)
        scores = [example.score for example in dataset.gold()]
        self.low, self.high = min(scores), max(scores)
        if self.low == self.high:
            raise BertsmithError(f"{dataset.path}: all scores are {self.low:g}: nothing to learn")
        if any(example.pair is None for example in dataset.examples):
            raise BertsmithError(f"{dataset.path}: similarity needs two texts in every row")

    def target(self, example: Any) -> float:
        """The score from 0 to 1."""
        return float(example.score - self.low) / (self.high - self.low)

    def loss(self, outputs: Tensor, batch: Batch, pieces: Sequence[Piece]) -> Tensor:
        """Squared difference of cosines and scores."""
        groups = self.texts(outputs, pieces)
        firsts, others = (torch.stack([group[side] for group in groups]) for side in (0, 1))
        targets = torch.tensor([piece.target for piece in pieces], device=outputs.device)
        gaps = (firsts * others).sum(-1) - targets
        return (gaps.square() * weights_of(pieces, outputs)).sum()
