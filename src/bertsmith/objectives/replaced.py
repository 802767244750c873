"""Replaced-token detection: a small generator fills the masks, the model says which it changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.errors import BertsmithError
from bertsmith.examples import Example
from bertsmith.model import Config, HeadConfig, Model
from bertsmith.objectives.masked import MaskedTokens
from bertsmith.objectives.objective import EncoderPass, LossTerm, Objective

Sharing = Literal["shared", "disentangled", "none"]


class ReplacedTokens(Objective):
    """ELECTRA's objective. The generator learns masked LM; its samples are not differentiated.

    sharing  "shared": both read one token table (ELECTRA). "disentangled": the model's table is
             the generator's, through which no gradient of its own flows, plus a difference that
             it learns (DeBERTa-v3). "none": each has its own.
    fills    share of the hidden tokens that the generator fills. Those it leaves stay hidden, and
             the model guesses them in the same pass: masked LM beside, for little more time.
    """

    name = "replaced"
    kind = "replaced"

    def __init__(
        self, model: Model, generator: Model, sharing: Sharing = "shared", fills: float = 1.0
    ) -> None:
        super().__init__()
        self.generator, self.sharing, self.fills = generator, sharing, fills
        # In a tuple: the table belongs to the model, which is trained beside this.
        self.tables: tuple[Any, Any] = (_embedding(model).token, _embedding(generator).token)
        own, theirs = (table.weight for table in self.tables)
        if sharing != "none" and own.shape != theirs.shape:
            raise BertsmithError("the generator's token table must be as wide as the model's")
        if sharing == "shared":
            share_embeddings(model, generator)
        elif sharing == "disentangled":
            with torch.no_grad():
                own.copy_(theirs)  # a difference of nothing
        self.before: Tensor | None = None

    @staticmethod
    def head(config: Config) -> HeadConfig:
        """Dense, activation, one output for every token."""
        return HeadConfig(1, dense=config.width, activation=config.activation)

    def counts(self, example: Example) -> dict[str, int]:
        """The generator guesses hidden tokens; the model judges all but those it guesses too."""
        hidden = len(example.rows)
        left = hidden - int(hidden * self.fills)
        found = {"generator": hidden, self.name: example.tokens - left}
        return found | ({} if self.fills == 1 else {MaskedTokens.name: left})

    def terms(self, encoder_pass: EncoderPass, example: Example) -> list[LossTerm]:
        """The generator's loss, and the model's on what the generator made."""
        logits = self.generator(example.batch, "masked_lm", example.rows)
        made = [self.guesses("generator", logits, example.targets)]
        filled, left = self._shared_out(example.rows)
        rows, targets = example.rows[filled], example.targets[filled]
        chosen = sample(logits.detach()[filled])
        ids = example.batch.ids.index_copy(0, rows, chosen)
        corrupted = EncoderPass(
            encoder_pass.model, replace(example, batch=replace(example.batch, ids=ids))
        )
        scores = corrupted.head(self.kind)[: example.tokens, 0].float()
        false = torch.zeros(len(ids), device=ids.device)
        wanted = false.index_copy(0, rows, (chosen != targets).float())[: example.tokens]
        judged = torch.ones_like(wanted)
        if self.fills < 1:
            judged = judged.index_fill(0, example.rows[left], 0.0)
            guessed = corrupted.head(MaskedTokens.kind, example.rows[left])
            made.append(self.guesses(MaskedTokens.name, guessed, example.targets[left]))
        loss = F.binary_cross_entropy_with_logits(scores, wanted, judged, reduction="sum")
        right = (((scores.detach() > 0) == (wanted > 0)) & (judged > 0)).sum()
        found = ((scores.detach() > 0) & (wanted > 0)).sum()
        self.ratios = {"replaced_recall": (found, wanted.sum())}  # of those changed, those found
        return [*made, LossTerm(self.name, loss, right)]

    def _shared_out(self, rows: Tensor) -> tuple[Any, Any]:
        """Which of the hidden tokens are filled, and which are left, evenly among each other."""
        if self.fills == 1:
            return slice(None), slice(0)
        filled = np.diff(np.floor(np.arange(len(rows) + 1) * self.fills)) > 0
        parts = (np.flatnonzero(filled), np.flatnonzero(~filled))
        first, second = (torch.from_numpy(part).to(rows.device) for part in parts)
        return first, second

    @torch.no_grad()
    def before_step(self) -> None:
        """Remember the generator's table."""
        if self.sharing == "disentangled":
            self.before = self.tables[1].weight.detach().clone()

    @torch.no_grad()
    def after_step(self) -> None:
        """Move the model's table as the generator's has moved.

        The optimizer changes the model's table by the difference that the model learns; adding
        the generator's movement makes it the sum of the two that DeBERTa-v3 describes.
        """
        if self.before is not None:
            own, theirs = (table.weight for table in self.tables)
            own += theirs - self.before
            self.before = None


def sample(logits: Tensor) -> Tensor:
    """One token for each row, drawn by its probability: (M, V) → (M,)."""
    # One random number a row. Noise for every token of the vocabulary (Gumbel's way) took over a
    # third of a small model's step on a CPU.
    reached = logits.float().softmax(-1).cumsum(-1)
    drawn = torch.rand(len(logits), 1, device=logits.device) * reached[:, -1:]
    found = torch.searchsorted(reached, drawn, right=True).squeeze(-1)
    return found.clamp(max=logits.shape[-1] - 1)  # a product may round up to the whole


def share_embeddings(model: Model, generator: Model) -> None:
    """Let a generator read the model's tables: of tokens, and of all else they both have."""
    ours, theirs = _embedding(model), _embedding(generator)
    theirs.token.weight = ours.token.weight
    for name, mark in theirs.marks.items():
        mark.weight = ours.marks[name].weight
    output: Any = generator.heads["masked_lm"].output
    output.weight = ours.token.weight


def _embedding(model: Model) -> Any:
    return model.encoder.embedding


def generator_config(config: Config, width: float = 0.25, depth: float = 1.0) -> Config:
    """A generator for a model: of its kind, narrower or shallower, with its token table's width."""
    heads = max(1, round(config.attention_heads * width))
    narrow = heads * config.per_head
    layers = max(1, round(len(config.plan) * depth))
    always = config.project_embedding and config.width == config.token_width
    signal = config.signal
    bases = getattr(signal, "bases", None)
    if bases is not None:
        signal = replace(signal, bases=bases[:layers])  # type: ignore[type-var]
    made = replace(
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
    return replace(made, heads={"masked_lm": MaskedTokens.head(made)})
