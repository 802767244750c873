"""Losses of single guesses, so that each can be weighted."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def choice_loss(
    logits: Tensor, targets: Tensor, *, focal: float = 0.0, smoothing: float = 0.0
) -> Tensor:
    """Cross entropy of each row (M, labels) with its target (M,) → (M,).

    With `focal` what the model is sure of counts less (Lin et al. 2017): times (1 - p)^focal.
    """
    loss = F.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)
    if focal:
        sure = logits.log_softmax(-1).gather(1, targets[:, None]).squeeze(1).exp()
        loss = loss * (1 - sure) ** focal
    return loss


def several_loss(
    logits: Tensor, targets: Tensor, *, focal: float = 0.0, smoothing: float = 0.0
) -> Tensor:
    """Binary cross entropy of each row's labels, their mean: two (M, labels) → (M, labels)."""
    aims = targets * (1 - smoothing) + smoothing / 2
    loss = F.binary_cross_entropy_with_logits(logits, aims, reduction="none")
    if focal:
        chance = logits.sigmoid()
        sure = torch.where(targets > 0.5, chance, 1 - chance)
        loss = loss * (1 - sure) ** focal
    return loss
