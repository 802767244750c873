"""Learning where answers stand: every window of a passage learns its start and end, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.data import Dataset, Question
from bertsmith.errors import BertsmithError
from bertsmith.finetune.lesson import Lesson
from bertsmith.finetune.losses import choice_loss
from bertsmith.finetune.pieces import Piece, Sample
from bertsmith.finetune.settings import Settings
from bertsmith.tasks.loaded import LoadedModel
from bertsmith.tasks.windows import Window

NOTHING = (0, 0)  # the first token is where "no answer" stands


class Answers(Lesson):
    """A window that holds the answer learns its first and last token; others learn "none"."""

    head = "answer"
    each_token = True

    def __init__(self, dataset: Dataset[Any], settings: Settings) -> None:
        super().__init__(dataset, settings)
        if settings.class_weights:
            raise BertsmithError("class weights are for labels; answers have none")
        self.empty = any(example.impossible for example in dataset.examples)

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """A sample for each window, as the field has it: a step has so many of them."""
        windower = self.windower(bert)
        made: list[Sample] = []
        unique = list(dict.fromkeys(text for example in examples for text in example.texts))
        encoded = dict(zip(unique, bert.encode(unique), strict=True))
        for number, example in enumerate(examples):
            asked, read = encoded[example.question], encoded[example.passage]
            span = token_span(example, read.offsets)
            if span is None and not example.impossible:
                bert.ledger.note("questions whose answer stands nowhere, not trained on")
                continue
            windows = windower.pair(number, asked.ids, read.ids)
            made += [(Piece((window,), _inside(window, span)),) for window in windows]
        return made

    def loss(self, outputs: Tensor, batch: Batch, pieces: Sequence[Piece]) -> Tensor:
        """Cross entropy of starts and ends among all tokens of a window, their mean."""
        lengths = torch.tensor(batch.layout.lengths, device=outputs.device)
        owner, place = batch.layout.owner, batch.layout.positions
        grid = outputs.new_full((len(lengths), batch.layout.longest, 2), float("-inf"))
        grid = grid.index_put((owner, place), outputs)
        targets = torch.tensor([piece.target for piece in pieces], device=outputs.device)
        starts, ends = (
            choice_loss(grid[:, :, side], targets[:, side], focal=self.settings.focal)
            for side in (0, 1)
        )
        return ((starts + ends) / 2).sum()


def token_span(example: Question, offsets: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The first and last token of the first gold answer that stands in the passage."""
    for answer in example.answers or ():
        if answer.start < 0:
            continue
        inside = [
            token
            for token, (start, end) in enumerate(offsets)
            if end > answer.start and start < answer.end and end > start
        ]
        if inside:
            return inside[0], inside[-1]
    return None


def _inside(window: Window, span: tuple[int, int] | None) -> tuple[int, int]:
    """The rows of an answer in a window, if all of it lies there."""
    if span is None or not (span[0] in window.tokens and span[1] in window.tokens):
        return NOTHING
    shift = window.first - window.tokens.start
    return span[0] + shift, span[1] + shift
