"""Contrastive learning: the two texts of one document find each other among all of a batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bertsmith.errors import BertsmithError
from bertsmith.examples import Example
from bertsmith.model import Model
from bertsmith.model.pooling import mean
from bertsmith.objectives.objective import EncoderPass, HeadPass, LossTerm, Objective


class Contrastive(Objective):
    """Cosines of mean states over a temperature, as logits of which text is one's partner.

    The texts of other documents in a micro-batch are negatives: `train.micro_tokens` decides how
    many there are. A text equal to one's own or to one's partner is not a negative.
    """

    name = "contrastive"
    kind = ""  # trains the encoder, and no head of its own
    format = "crops"

    def __init__(self, temperature: float = 0.03) -> None:
        super().__init__()
        self.temperature = temperature

    def counts(self, example: Example) -> dict[str, int]:
        """Every text looks for its partner."""
        return {self.name: example.samples}

    def passes(self, model: Model, tokens: int, sequences: int, masked: float) -> list[HeadPass]:
        """The encoder alone."""
        return [HeadPass(model, self.kind, 0)]

    def terms(self, encoder_pass: EncoderPass, example: Example) -> list[LossTerm]:
        """The loss of all texts; "correct" are those whose nearest text is their partner."""
        if example.labels is None or example.pairs is None:
            raise BertsmithError(f"{self.name} needs pairs: set data.format to {self.format!r}")
        states = encoder_pass.hidden.last.float()
        vectors = F.normalize(mean(states, example.batch.layout)[: example.samples], dim=-1)
        with torch.autocast(vectors.device.type, enabled=False):
            logits = vectors @ vectors.T / self.temperature
        pair, text = example.pairs.unbind(1)
        firsts, seconds = pair.argsort(stable=True).view(-1, 2).unbind(1)
        partner = torch.empty_like(pair)
        partner[firsts], partner[seconds] = seconds, firsts
        left_out = example.labels[:, None] == example.labels
        left_out |= (text[:, None] == text) | (text[partner][:, None] == text)
        left_out[firsts, seconds] = left_out[seconds, firsts] = False
        logits = logits.masked_fill(left_out, float("-inf"))
        return [LossTerm(self.name, *self.score(logits, partner))]
