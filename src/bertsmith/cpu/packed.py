"""Linear layers with weights packed for a CPU's matrix units (bfloat16, oneDNN)."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.model.feedforward import FeedForward

ROWS = 2048  # tokens the layout is made for; other numbers run as fast


class RepackedLinear(nn.Linear):
    """A linear layer with a second copy of its weight in another layout, for inference.

    The plain weight stays, under its own name, for saving and training. The copy is valid only
    while the weight is what it was when it was packed.
    """

    packed: Any = None
    packed_version: int = -1

    @property
    def version(self) -> int:
        """How often the weight was changed; one that was made for inference keeps no count."""
        return 0 if self.weight.is_inference() else self.weight._version

    @property
    def is_fresh(self) -> bool:
        """Is there a packed copy of the current weight?"""
        return self.packed is not None and self.version == self.packed_version

    def _apply(self, *change: Any, **options: Any) -> Any:
        self.packed = None  # the weight moves or changes its type
        return super()._apply(*change, **options)  # type: ignore[no-untyped-call]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "packed": None}  # what a library made cannot be copied


class PackedLinear(RepackedLinear):
    """A linear layer that multiplies with oneDNN's bfloat16 kernels in inference mode."""

    gelu: str | None = None  # "none" or "tanh": apply it in the same pass over the rows

    def forward(self, x: Tensor) -> Tensor:
        """(T, in) → (T, out)."""
        if self.is_fresh and torch.is_inference_mode_enabled() and x.dtype == torch.bfloat16:
            kind, how = ("none", "") if self.gelu is None else ("gelu", self.gelu)
            return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, kind, [], how)
        plain = super().forward(x)
        return plain if self.gelu is None else F.gelu(plain, approximate=self.gelu)

    def pack(self) -> None:
        """Make the reordered copy."""
        with torch.inference_mode():
            plain = self.weight.detach().contiguous()
            self.packed = torch.ops.mkldnn._reorder_linear_weight(plain, ROWS)
        self.packed_version = self.version


def prepare(model: nn.Module) -> None:
    """Prepare a model for inference: pack bfloat16 linear layers on a CPU, if torch supports it.

    In a plain feed-forward, the first of them also applies the activation.
    """
    for module in model.modules():
        if type(module) in (nn.Linear, PackedLinear) and isinstance(module, nn.Linear):
            weight = module.weight
            if weight.dtype == torch.bfloat16 and weight.device.type == "cpu" and can_pack():
                module.__class__ = PackedLinear
                assert isinstance(module, PackedLinear)
                module.pack()
    for module in model.modules():
        match module:
            case FeedForward(gated=False, up=PackedLinear() as up, activation=nn.GELU() as gelu):
                up.gelu, module.activation = gelu.approximate, nn.Identity()


@cache
def can_pack() -> bool:
    """Does this torch have the operators, and do their results equal a linear layer's?"""
    if not torch.backends.mkldnn.is_available():
        return False
    with torch.inference_mode(False):
        plain = PackedLinear(32, 64, dtype=torch.bfloat16)
        rows = torch.ones(8, 32, dtype=torch.bfloat16)
    try:
        plain.pack()
        with torch.inference_mode():
            return bool(torch.allclose(plain(rows), nn.Linear.forward(plain, rows), atol=0.05))
    except (AttributeError, RuntimeError):
        return False
