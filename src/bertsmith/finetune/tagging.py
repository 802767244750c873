"""Learning a tag for every word: words and tokens are matched by their characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.data import Dataset
from bertsmith.errors import BertsmithError
from bertsmith.finetune.labelling import named
from bertsmith.finetune.lesson import Lesson
from bertsmith.finetune.losses import choice_loss
from bertsmith.finetune.pieces import Piece, Sample
from bertsmith.finetune.settings import Settings
from bertsmith.finetune.weights import class_weights
from bertsmith.tasks.loaded import LoadedModel
from bertsmith.tasks.tagging import first_tokens
from bertsmith.tasks.windows import clearest

Marks = list[tuple[int, int]]  # (row of a window, label) of every word that is learned there


class Tags(Lesson):
    """A word's first token learns its tag, in the window in which it is clearest."""

    head = "tag"
    each_token = True

    def __init__(self, dataset: Dataset[Any], settings: Settings) -> None:
        super().__init__(dataset, settings)
        self.labels = dataset.labels
        self.place = {name: number for number, name in enumerate(self.labels)}
        if len(self.labels) < 2:
            raise BertsmithError(f"{dataset.path}: two tags or more are needed to learn anything")
        seen = (tag for example in dataset.gold() for tag in example.tags)
        self.weights = class_weights(settings.class_weights, self.labels, seen)

    def changes(self) -> dict[str, Any]:
        """The names of the tags."""
        return {**named(self.labels, ""), "problem_type": None}

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """A piece for each window that has words to learn."""
        windower, made = self.windower(bert), []
        encoded = bert.encode([example.text for example in examples])
        for number, (example, encoding) in enumerate(zip(examples, encoded, strict=True)):
            group = windower.single(number, encoding.ids)
            best = clearest([window.tokens for window in group], len(encoding))
            marks: list[Marks] = [[] for _ in group]
            firsts = first_tokens(encoding.offsets, example.offsets)
            bert.ledger.note("words without tokens, not trained on", firsts.count(None))
            for token, tag in zip(firsts, example.tags, strict=True):
                if token is not None:
                    window = group[best[token]]
                    row = window.first + token - window.tokens.start
                    marks[best[token]].append((row, self.place[tag]))
            pieces = [
                Piece((window,), own, sum(self.weights[label] for _, label in own))
                for window, own in zip(group, marks, strict=True)
                if own
            ]
            if pieces:
                made.append(tuple(pieces))
        return made

    def loss(self, outputs: Tensor, batch: Batch, pieces: Sequence[Piece]) -> Tensor:
        """Cross entropy of every word, by its tag's weight."""
        starts = batch.layout.boundaries[:-1].tolist()
        rows, targets = [], []
        for start, piece in zip(starts, pieces, strict=True):
            rows += [start + row for row, _ in piece.target]
            targets += [label for _, label in piece.target]
        place, aims = (torch.tensor(one, device=outputs.device) for one in (rows, targets))
        loss = choice_loss(
            outputs[place], aims, focal=self.settings.focal, smoothing=self.settings.smoothing
        )
        return (loss * torch.tensor(self.weights, device=outputs.device)[aims]).sum()
