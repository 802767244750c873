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
    """Widen, bend, narrow; gated, widen twice, and one half, bent, scales the other (GeGLU)."""

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
        self.gated = gated  # `up` then makes what is bent, and after it what scales

    def forward(self, x: Tensor) -> Tensor:
        """(T, D) → (T, D)."""
        return self.down(self.widen(x))

    def widen(self, x: Tensor) -> Tensor:
        """(T, D) → (T, F), what `down` maps back."""
        return self.dropout(up_gelu(x, self.up, self.activation, self.gated))
