"""Masked LM: predict masked tokens from both sides; and left-to-right LM, the ablation of BERT."""

import torch

from bertsmith.errors import BertsmithError
from bertsmith.examples import Example
from bertsmith.model import Config, HeadConfig, Model
from bertsmith.objectives.objective import EncoderPass, HeadPass, LossTerm, Objective, best_guesses


class MaskedTokens(Objective):
    """Cross entropy at the masked tokens; logits are computed for them only."""

    name = "masked_lm"
    kind = "masked_lm"
    capturable = True

    @staticmethod
    def head(config: Config) -> HeadConfig:
        """Dense, activation, norm, and the tied token table as output matrix."""
        width, act = config.token_width, config.activation
        return HeadConfig(config.vocabulary, dense=width, activation=act, norm=True, tied=True)

    def terms(self, encoder_pass: EncoderPass, example: Example) -> list[LossTerm]:
        """The loss; outside of training it also keeps the most probable tokens."""
        logits = encoder_pass.head(self.kind, example.rows)
        self.best = None if self.training else best_guesses(logits)
        return [self.guesses(self.name, logits, example.targets)]


NOT_CAUSAL = "following_lm needs a causal model: set model.settings.is_decoder = true"


class FollowingTokens(Objective):
    """Cross entropy of every token given those to its left. The encoder must be causal."""

    name = "following_lm"
    kind = "masked_lm"

    @staticmethod
    def head(config: Config) -> HeadConfig:
        """The head of masked LM."""
        if not config.causal:
            raise BertsmithError(NOT_CAUSAL)
        return MaskedTokens.head(config)

    def counts(self, example: Example) -> dict[str, int]:
        """One prediction for each token but the last of each sample."""
        return {self.name: example.tokens - example.samples}

    def passes(self, model: Model, tokens: int, sequences: int, masked: float) -> list[HeadPass]:
        """The output layer on every token that has a next one."""
        return [HeadPass(model, self.kind, tokens - sequences)]

    def terms(self, encoder_pass: EncoderPass, example: Example) -> list[LossTerm]:
        """The loss of all predictions."""
        last = example.batch.layout.boundaries[1 : example.samples + 1].long() - 1
        has_next = torch.ones(example.tokens, dtype=torch.bool, device=last.device)
        has_next[last] = False
        rows = has_next.nonzero().flatten()
        logits = encoder_pass.head(self.kind, rows)
        return [self.guesses(self.name, logits, encoder_pass.batch.ids[rows + 1])]
