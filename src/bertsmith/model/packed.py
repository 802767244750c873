"""Linear layers whose weights lie as this CPU's matrix units read them (bfloat16, oneDNN)."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

ROWS = 2048  # tokens the layout is made for; other numbers run as fast


class PackedLinear(nn.Linear):
    """A linear layer with a second, reordered copy of its weight for inference.

    The plain weight stays, under its own name, for saving and training. The copy counts only
    while the weight is what it was when it was packed.
    """

    packed: Tensor | None = None
    packed_version: int = -1

    def forward(self, x: Tensor) -> Tensor:
        """(T, in) → (T, out)."""
        fresh = self.packed is not None and self.weight._version == self.packed_version
        if fresh and torch.is_inference_mode_enabled() and x.dtype == torch.bfloat16:
            return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return super().forward(x)

    def pack(self) -> None:
        """Make the reordered copy."""
        with torch.inference_mode():
            plain = self.weight.detach().contiguous()
            self.packed = torch.ops.mkldnn._reorder_linear_weight(plain, ROWS)
        self.packed_version = self.weight._version

    def _apply(self, *change: Any, **options: Any) -> Any:
        self.packed = None  # the weight moves or changes its type
        return super()._apply(*change, **options)  # type: ignore[no-untyped-call]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "packed": None}  # what oneDNN made cannot be copied


def prepare(model: nn.Module) -> None:
    """Get a model ready for inference: bfloat16 linear layers on a CPU are packed, if torch can."""
    for module in model.modules():
        if type(module) in (nn.Linear, PackedLinear) and isinstance(module, nn.Linear):
            weight = module.weight
            if weight.dtype == torch.bfloat16 and weight.device.type == "cpu" and can_pack():
                module.__class__ = PackedLinear
                assert isinstance(module, PackedLinear)
                module.pack()


@cache
def can_pack() -> bool:
    """Does this torch have the operators, and do they give what a linear layer gives?"""
    if not torch.backends.mkldnn.is_available():
        return False
    plain = PackedLinear(32, 64, dtype=torch.bfloat16)
    rows = torch.ones(8, 32, dtype=torch.bfloat16)
    try:
        plain.pack()
        with torch.inference_mode():
            return bool(torch.allclose(plain(rows), nn.Linear.forward(plain, rows), atol=0.05))
    except (AttributeError, RuntimeError):
        return False
