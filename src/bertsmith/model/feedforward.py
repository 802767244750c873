"""The pointwise half of a block, and the activations checkpoints name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from bertsmith.errors import BertsmithError

TANH = partial(nn.GELU, approximate="tanh")
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    **dict.fromkeys(("gelu", "gelu_python"), nn.GELU),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), TANH),
    **dict.fromkeys(("silu", "swish"), nn.SiLU),
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "linear": nn.Identity,
}


def activation(name: str) -> nn.Module:
    """The activation that a config file names."""
    if name not in ACTIVATIONS:
        raise BertsmithError(f"unknown activation {name!r}; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]()


class FeedForward(nn.Module):
    """Widen, bend, narrow."""

    def __init__(
        self, up: nn.Module, activation: nn.Module, dropout: nn.Module, down: nn.Module
    ) -> None:
        super().__init__()
        self.up, self.activation, self.dropout, self.down = up, activation, dropout, down

    def forward(self, x: Tensor) -> Tensor:
        """(T, D) → (T, D)."""
        return self.down(self.dropout(self.activation(self.up(x))))


class GatedFeedForward(FeedForward):
    """Widen twice; one half, bent, gates the other (GeGLU)."""

    def forward(self, x: Tensor) -> Tensor:
        """(T, D) → (T, D)."""
        bent, gate = self.up(x).chunk(2, dim=-1)
        return self.down(self.dropout(self.activation(bent) * gate))
