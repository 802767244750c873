"""Next-sentence prediction (BERT) and sentence order (ALBERT)."""

from bertsmith.errors import BertsmithError
from bertsmith.examples import Example
from bertsmith.model import Config, HeadConfig, Model
from bertsmith.objectives.objective import EncoderPass, HeadPass, LossTerm, Objective


class NextSentence(Objective):
    """Whether the second text follows the first (0), or comes from another document (1)."""

    name = "next_sentence"
    kind = "next_sentence"
    format = "next"
    capturable = True

    @staticmethod
    def head(config: Config) -> HeadConfig:
        """The first state through a dense layer, then two outputs."""
        return HeadConfig(2, "first", config.width, activation="tanh")

    def counts(self, example: Example) -> dict[str, int]:
        """One prediction for each pair."""
        return {self.name: example.samples}

    def passes(self, model: Model, tokens: int, sequences: int, masked: float) -> list[HeadPass]:
        """One row for each pair."""
        return [HeadPass(model, self.kind, sequences, "")]

    def terms(self, encoder_pass: EncoderPass, example: Example) -> list[LossTerm]:
        """The loss of all predictions, on the filled text if there is a generator."""
        if example.labels is None:
            raise BertsmithError(f"{self.name} needs pairs: set data.format to {self.format!r}")
        logits = (encoder_pass.filled or encoder_pass).head(self.kind)[: example.samples]
        return [self.guesses(self.name, logits, example.labels)]


class SentenceOrder(NextSentence):
    """Whether the two texts are in their original order (0), or swapped (1)."""

    name = "sentence_order"
    kind = "sentence_order"
    format = "order"
