"""A Config → modules on the meta device, with shared parameters."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from bertsmith.checkpoint.names import Translation
from bertsmith.model import Config, Model, build


class Unfilled(TorchFunctionMode):
    """Modules made within are given no first values: others will take their place."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Leave out what `torch.nn.init` would do."""
        if getattr(function, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"]
        return function(*args, **(kwargs or {}))


def assemble(config: Config, names: Translation, device: str) -> Model:
    """A model whose values are still to come; on the device "meta" it takes no memory.

    What a checkpoint stores as one tensor is one tensor here too: the heads that stand on
    BERT's pooler share it. Last layers are each head's own.
    """
    with Unfilled(), torch.device(device):
        model = build(config)
    first: dict[tuple[object, ...], nn.Parameter] = {}
    shared = {}
    for ours, parameter in model.named_parameters():
        place = (ours,) if ".output." in ours else (*names.theirs(ours), parameter.shape)
        shared[parameter] = first.setdefault(place, parameter)
    substitute(model, shared)
    return model


def substitute(model: nn.Module, others: Mapping[nn.Parameter, nn.Parameter]) -> None:
    """Put other parameters in the places of a model's own."""
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, others[parameter])


def emptied(module: nn.Module) -> dict[int, Any]:
    """A memo for `deepcopy`: the copies of a module's parameters take no memory."""
    empty = ((p, torch.empty_like(p, device="meta")) for p in module.parameters())
    return {id(p): nn.Parameter(tensor, p.requires_grad) for p, tensor in empty}
