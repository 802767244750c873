"""Masked LM: guess hidden tokens from both sides."""

from __future__ import annotations

from bertsmith.examples import Example
from bertsmith.model import Config, HeadConfig
from bertsmith.objectives.objective import EncoderPass, LossTerm, Objective


class MaskedTokens(Objective):
    """Cross entropy at the hidden tokens; the vocabulary is only computed there."""

    name = "masked_lm"
    kind = "masked_lm"

    @staticmethod
    def head(config: Config) -> HeadConfig:
        """Dense, activation, norm, and the token table as output matrix."""
        width, act = config.token_width, config.activation
        return HeadConfig(config.vocabulary, dense=width, activation=act, norm=True, tied=True)

    def counts(self, example: Example) -> dict[str, int]:
        """One guess for each hidden token."""
        return {self.name: len(example.rows)}

    def terms(self, encoder_pass: EncoderPass, example: Example) -> list[LossTerm]:
        """The loss of all guesses."""
        return [
            self.guesses(self.name, encoder_pass.head(self.kind, example.rows), example.targets)
        ]
