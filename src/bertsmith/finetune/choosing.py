"""Learning which of several choices goes with a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.data import Dataset
from bertsmith.errors import BertsmithError
from bertsmith.finetune.labelling import weights_of
from bertsmith.finetune.lesson import Lesson
from bertsmith.finetune.losses import choice_loss
from bertsmith.finetune.pieces import Piece, Sample
from bertsmith.finetune.settings import Settings
from bertsmith.tasks.choice import choice_windows, pooled_scores
from bertsmith.tasks.loaded import LoadedModel


class Choices(Lesson):
    """The right choice is to have the highest score of all that stand beside it."""

    head = "choose"

    def __init__(self, dataset: Dataset[Any], settings: Settings) -> None:
        super().__init__(dataset, settings)
        if settings.class_weights:
            raise BertsmithError("class weights are for labels; choices have none")

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """One piece for each question: its choices compete, so they pass together."""
        how = self.windower(bert)
        prompts = [example.prompt for example in examples]
        grouped = choice_windows(bert, prompts, [example.options for example in examples], how)
        return [
            (Piece(tuple(windows), example.label),)
            for windows, example in zip(grouped, examples, strict=True)
        ]

    def loss(self, outputs: Tensor, batch: Batch, pieces: Sequence[Piece]) -> Tensor:
        """Cross entropy among each question's choices."""
        sizes = [len(piece.windows) for piece in pieces]
        rows = outputs.flatten().split(sizes)
        found = []
        for row, piece in zip(rows, pieces, strict=True):
            scores = pooled_scores(row, [window.number for window in piece.windows])
            target = torch.tensor([piece.target], device=outputs.device)
            smoothing = self.settings.smoothing
            found.append(
                choice_loss(scores[None], target, focal=self.settings.focal, smoothing=smoothing)
            )
        return (torch.cat(found) * weights_of(pieces, outputs)).sum()
