"""Replaced-token detection: a small generator fills the masks, the model detects what changed."""

from dataclasses import replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.errors import BertsmithError
from bertsmith.examples import Example
from bertsmith.model import Config, HeadConfig, Model
from bertsmith.objectives.masked import MaskedTokens
from bertsmith.objectives.objective import EncoderPass, HeadPass, LossTerm, Objective

Sharing = Literal["shared", "disentangled", "none"]


class ReplacedTokens(Objective):
    """ELECTRA's objective. The generator learns masked LM; its samples are not differentiated.

    sharing      "shared": both use one token table (ELECTRA). "disentangled": the model's table is
                 the generator's E, which the model's gradient does not reach, plus its own Δ
                 (DeBERTa-v3). "none": separate tables.
    fills        fraction of the sequences whose masks the generator fills. In the others they
                 stay masked, and the model predicts them: masked LM in the same pass.
    frozen       the generator is a trained model that does not learn (Fast-ELECTRA). It shares
                 nothing, and is neither trained nor stored with the model.
    temperature  divisor of the generator's logits: replacements are easier to detect above 1.
    """

    name = "replaced"
    kind = "replaced"

    def __init__(
        self,
        model: Model,
        generator: Model,
        sharing: Sharing = "shared",
        fills: float = 1.0,
        *,
        frozen: bool = False,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        self.fills, self.temperature, self.frozen = fills, temperature, frozen
        self.sharing: Sharing = "none" if frozen else sharing
        self.capturable = frozen  # type: ignore[misc]  # one that learns may act before a step
        if frozen:
            self.outside = (generator.eval().requires_grad_(False),)
            return
        self.generator = generator
        # In a tuple, so that the table is registered with the model only.
        self.tables: tuple[Any, Any] = (_embedding(model).token, _embedding(generator).token)
        own, theirs = (table.weight for table in self.tables)
        if sharing != "none" and own.shape != theirs.shape:
            raise BertsmithError("the generator's token table must be as wide as the model's")
        if sharing == "shared":
            ours, others = _embedding(model), _embedding(generator)
            head: Any = generator.heads["masked_lm"]
            head.output.weight = others.token.weight = ours.token.weight
            for name, mark in others.marks.items():  # of those that both have
                mark.weight = ours.marks[name].weight
        elif sharing == "disentangled":
            with torch.no_grad():
                theirs.copy_(own)  # a continued model keeps its table; Δ starts at 0

    @staticmethod
    def head(config: Config) -> HeadConfig:
        """Dense, activation, one output for every token."""
        return HeadConfig(1, dense=config.width, activation=config.activation)

    def counts(self, example: Example) -> dict[str, int]:
        """The generator predicts masked tokens; the model classifies tokens of filled sequences."""
        counts = {} if self.frozen else {"generator": len(example.rows)}
        if example.filled is None or example.judged is None:
            return counts | {self.name: example.tokens}
        left = len(example.rows) - example.filled
        return counts | {self.name: int(example.judged.sum()), MaskedTokens.name: left}

    def passes(self, model: Model, tokens: int, sequences: int, masked: float) -> list[HeadPass]:
        """The generator on masked tokens; the model on the text that the generator filled.

        The pass of a frozen generator is not counted.
        """
        passes = [HeadPass(model, self.kind, tokens, "filled")]
        if not self.frozen:
            passes.append(HeadPass(self.generator, "masked_lm", masked, "generator"))
        left = masked * (1 - self.fills)
        return passes + [HeadPass(model, MaskedTokens.kind, left, "filled")] * (self.fills < 1)

    def terms(self, encoder_pass: EncoderPass, example: Example) -> list[LossTerm]:
        """The generator's loss, and the model's on the text that the generator filled."""
        original = example.batch.ids
        rows, targets = example.rows[: example.filled], example.targets[: example.filled]
        logits, terms = self._generated(example, rows)
        known = targets >= 0  # padding rows keep their token
        samples = torch.where(known, sample(logits, self.temperature), original[rows])
        ids = original.index_copy(0, rows, samples)
        batch = replace(example.batch, ids=ids)
        corrupted = EncoderPass(encoder_pass.model, replace(example, batch=batch))
        encoder_pass.filled = corrupted
        scores = corrupted.head(self.kind)[:, 0].float()
        labels = torch.zeros_like(scores)
        labels = labels.index_copy(0, rows, ((samples != targets) & known).float())
        judged = example.judged
        if judged is None:
            judged = torch.arange(len(ids), device=ids.device) < example.tokens
        else:
            rows, targets = example.rows[example.filled :], example.targets[example.filled :]
            guesses = corrupted.head("masked_lm", rows)
            terms.append(self.guesses(MaskedTokens.name, guesses, targets))
        loss = F.binary_cross_entropy_with_logits(scores, labels, judged.float(), reduction="sum")
        correct = (((scores.detach() > 0) == (labels > 0)) & judged).sum()
        detected = ((scores.detach() > 0) & (labels > 0)).sum()
        self.ratios = {"replaced_recall": (detected, labels.sum())}
        return [*terms, LossTerm(self.name, loss, correct)]

    def _generated(self, example: Example, rows: Tensor) -> tuple[Tensor, list[LossTerm]]:
        """The generator's logits at the tokens that it fills; and its loss, where it learns."""
        if self.frozen:
            self.place(rows.device)
            with torch.no_grad():
                return self.outside[0](example.batch, "masked_lm", rows), []
        logits = self.generator(example.batch, "masked_lm", example.rows)
        return logits.detach()[: len(rows)], [self.guesses("generator", logits, example.targets)]

    @torch.no_grad()
    def before_step(self) -> None:
        """Set the model's table to Δ alone, so that the optimizer updates and decays Δ."""
        if self.sharing == "disentangled":
            self.tables[0].weight -= self.tables[1].weight

    @torch.no_grad()
    def after_step(self) -> None:
        """Set the model's table to E + Δ, with the generator's new E."""
        if self.sharing == "disentangled":
            self.tables[0].weight += self.tables[1].weight


def sample(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """One token for each row, drawn by probability: (M, V) → (M,)."""
    # One random number a row. Gumbel noise for every token of the vocabulary took over a third of
    # a small model's step on a CPU.
    cumulative = (logits.float() / temperature).softmax(-1).cumsum(-1)
    drawn = torch.rand(len(logits), 1, device=logits.device) * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, drawn, right=True).squeeze(-1)
    return tokens.clamp(max=logits.shape[-1] - 1)  # the product may round up to the total


def _embedding(model: Model) -> Any:
    return model.encoder.embedding


def generator_config(config: Config, width: float = 0.25, depth: float = 1.0) -> Config:
    """A generator for a model: same family and token-table width, narrower or shallower."""
    heads = max(1, round(config.attention_heads * width))
    narrow = heads * config.per_head
    layers = max(1, round(len(config.plan) * depth))
    always = config.project_embedding and config.width == config.token_width
    signal: Any = config.signal
    if hasattr(signal, "bases"):
        signal = replace(signal, bases=signal.bases[:layers])
    small = replace(
        config,
        width=narrow,
        attention_heads=heads,
        feedforward=max(1, round(config.feedforward * narrow / config.width)),
        layers=layers,
        order=config.order[:layers],
        windows=config.windows[:layers],
        signal=signal,
        embedding_width=config.token_width,
        project_embedding=always or narrow != config.token_width,
        convolution=None,
        heads={},
    )
    return replace(small, heads={"masked_lm": MaskedTokens.head(small)})
