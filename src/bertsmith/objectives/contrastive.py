"""Contrastive learning: the two texts of one document find each other among all of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.errors import BertsmithError
from bertsmith.examples import Example
from bertsmith.model.pooling import mean
from bertsmith.objectives.objective import EncoderPass, LossTerm, Objective


class TextVectors(NamedTuple):
    """The texts that are compared with each other."""

    vectors: Tensor  # (N, D) float32
    documents: Tensor  # (N,) int64
    pairs: Tensor  # (N, 2) int64: the pair, and a digest of the text


class ContrastiveLoss(NamedTuple):
    """The loss of a micro-batch's texts among all texts of a step."""

    sum: Tensor
    correct: Tensor
    gradient: Tensor  # (N, D) of the loss of all texts, with respect to the vectors of these


Compare = Callable[[TextVectors], ContrastiveLoss]


class Contrastive(Objective):
    """Cosines of mean states over a temperature, as logits of which text is one's partner.

    The texts of other documents are negatives: those of the step if they are gathered, else
    those of its own batch. A text equal to one's own or to one's partner is not a negative.
    """

    name = "contrastive"
    format = "crops"
    compares = True

    def __init__(self, temperature: float = 0.03) -> None:
        super().__init__()
        self.temperature = temperature

    def counts(self, example: Example) -> dict[str, int]:
        """Every text looks for its partner."""
        return {self.name: example.samples}

    def texts(self, encoder_pass: EncoderPass, example: Example) -> TextVectors:
        """The texts of an example and their vectors."""
        if example.labels is None or example.pairs is None:
            raise BertsmithError(f"{self.name} needs pairs: set data.format to {self.format!r}")
        states = encoder_pass.hidden.last.float()
        vectors = F.normalize(mean(states, example.batch.layout)[: example.samples], dim=-1)
        return TextVectors(vectors, example.labels, example.pairs)

    def terms(self, encoder_pass: EncoderPass, example: Example) -> list[LossTerm]:
        """The loss of all texts; "correct" are those whose nearest text is their partner."""
        texts = self.texts(encoder_pass, example)
        if encoder_pass.compare is None:
            return [LossTerm(self.name, *self.losses(texts))]
        loss = encoder_pass.compare(texts)
        # The loss of these texts, with the gradient of the loss of all.
        linear = (texts.vectors * loss.gradient).sum()
        return [LossTerm(self.name, loss.sum + linear - linear.detach(), loss.correct)]

    def losses(
        self, texts: TextVectors, first: int = 0, last: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """The loss of the texts from `first` to `last` among all, and how many are correct."""
        vectors, documents, (pair, text) = texts.vectors, texts.documents, texts.pairs.unbind(1)
        firsts, seconds = pair.argsort(stable=True).view(-1, 2).unbind(1)
        partner = torch.empty_like(pair)
        partner[firsts], partner[seconds] = seconds, firsts
        own = slice(first, last)
        with torch.autocast(vectors.device.type, enabled=False):
            logits = vectors[own] @ vectors.T / self.temperature
        left_out = documents[own, None] == documents
        left_out |= (text[own, None] == text) | (text[partner[own], None] == text)
        left_out.scatter_(1, partner[own, None], False)
        return self.score(logits.masked_fill(left_out, float("-inf")), partner[own])
