"""Several processes as one run, started by torchrun: who am I, and what do all of us say?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bertsmith.errors import BertsmithError
from bertsmith.train.precision import Halved


class Ranks:
    """This process among all; alone unless torchrun says otherwise."""

    def __init__(self, device: torch.device) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.count = int(os.environ.get("WORLD_SIZE", "1"))
        if device.type == "cuda" and self.count > 1:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(device)
        self.device = device

    @property
    def first(self) -> bool:
        """Is this the process that writes and speaks?"""
        return self.rank == 0

    @contextmanager
    def together(self) -> Iterator[None]:
        """Join the others for as long as this lasts."""
        if self.count == 1:
            yield
            return
        dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo")
        try:
            yield
        finally:
            dist.destroy_process_group()

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """The sums over all ranks."""
        if self.count == 1:
            return list(numbers)
        row = torch.tensor(list(numbers), dtype=torch.float64, device=self.device)
        dist.all_reduce(row)
        found: list[float] = row.tolist()
        return found

    def wait(self) -> None:
        """Until all are here."""
        if self.count > 1:
            dist.barrier()

    def share(self, value: Any) -> Any:
        """What the first rank says."""
        if self.count == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def ask_first(self, job: Callable[[], None]) -> None:
        """Let the first rank do something; what goes wrong goes wrong for all."""
        fault = ""
        if self.first:
            try:
                job()
            except BertsmithError as error:
                fault = str(error)
        if fault := self.share(fault):
            raise BertsmithError(fault)

    def wrap(
        self, module: nn.Module, how: str, blocks: Sequence[nn.Module], half: bool
    ) -> nn.Module:
        """The module as the ranks train it: copies that agree (ddp), or shares of one (fsdp)."""
        if self.count == 1 or how == "ddp":
            whole = Halved(module) if half else module
            return whole if self.count == 1 else nn.parallel.DistributedDataParallel(whole)
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = init_device_mesh(self.device.type, (self.count,))
        kinds = (torch.bfloat16, torch.float32) if half else ()
        for part in (*blocks, module):
            fully_shard(part, mesh=mesh, mp_policy=MixedPrecisionPolicy(*kinds))
        return module

    def quiet(self, module: Any, last: bool) -> AbstractContextManager[Any]:
        """Let gradients gather without the others until the last part of a step."""
        if isinstance(module, nn.parallel.DistributedDataParallel) and not last:
            return module.no_sync()
        if self.count > 1 and hasattr(module, "set_requires_gradient_sync"):
            module.set_requires_gradient_sync(last)
        return nullcontext()


def whole(tensor: Tensor) -> Tensor:
    """A tensor of which every rank may hold a share, as one."""
    joined = getattr(tensor, "full_tensor", None)
    return tensor if joined is None else joined()


def fill(tensor: Tensor, value: Tensor) -> None:
    """Give a tensor, or this rank's share of it, its value."""
    mesh = getattr(tensor, "device_mesh", None)
    with torch.no_grad():
        if mesh is None:
            tensor.copy_(value)
        else:
            from torch.distributed.tensor import distribute_tensor

            placed = value.to(tensor.device)
            tensor.copy_(distribute_tensor(placed, mesh, tensor.placements))  # type: ignore[attr-defined]


def gather_anew(module: nn.Module) -> None:
    """Let shares of weights that were changed by hand be gathered again before they are used."""
    for part in module.modules():
        reshard: Any = getattr(part, "reshard", None)
        if reshard is not None:
            reshard()


def demand_plain(ranks: Ranks, how: str, optimizer: str) -> None:
    """Refuse an optimizer that needs whole matrices where each rank holds a share."""
    if ranks.count > 1 and how == "fsdp" and optimizer in ("muon", "lamb", "stable_adamw"):
        raise BertsmithError(f'{optimizer} needs whole matrices: use train.parallel = "ddp"')
