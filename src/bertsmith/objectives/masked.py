"""Masked LM: predict masked tokens from both sides."""

from bertsmith.examples import Example
from bertsmith.model import Config, HeadConfig
from bertsmith.objectives.objective import EncoderPass, LossTerm, Objective, best_guesses


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
