"""The feed-forward half of a block, and its activations."""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from bertsmith.errors import BertsmithError
from bertsmith.kernels import up_gelu

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
    """Up-projection, activation, down-projection.

    If gated (GeGLU), the up-projection has two halves: activation(first half) times second half.
    """

    def __init__(
        self,
        up: nn.Module,
        activation: nn.Module,
        dropout: nn.Module,
        down: nn.Module,
        gated: bool = False,
    ) -> None:
        super().__init__()
        self.up, self.activation, self.dropout, self.down = up, activation, dropout, down
        self.gated = gated

    def forward(self, x: Tensor) -> Tensor:
        """(T, D) → (T, D)."""
        return self.down(self.inner(x))

    def inner(self, x: Tensor) -> Tensor:
        """Up-projection, activation and dropout: (T, D) → (T, F)."""
        return self.dropout(up_gelu(x, self.up, self.activation, self.gated))
