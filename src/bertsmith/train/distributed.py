"""Several processes as one run, started by torchrun; one process without it."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from bertsmith.errors import BertsmithError
from bertsmith.train.activations import blocks_of, checkpoint_blocks
from bertsmith.train.precision import Autocast, Precision, cast_in_units

# Process groups until the process ends: if DDP's reducer, which may be freed after anything else,
# were the last to hold one, it would wait for a thread that waits for Python's lock.
KEPT: list[Any] = []


def device_named(name: str) -> torch.device:
    """The device of this name; by default a GPU if there is one."""
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


class Ranks:
    """The rank of this process; a single process unless started by torchrun."""

    def __init__(self, device: torch.device, variables: Mapping[str, str] = os.environ) -> None:
        self.rank = int(variables.get("RANK", "0"))
        self.count = int(variables.get("WORLD_SIZE", "1"))
        self.near = int(variables.get("LOCAL_WORLD_SIZE", self.count))  # ranks of this machine
        self.restarts = int(variables.get("TORCHELASTIC_RESTART_COUNT", "0"))
        # torchrun's id of the job; "none" if all its machines are fixed.
        self.job = variables.get("TORCHELASTIC_RUN_ID", "none").removeprefix("none")
        if device.type == "cuda" and self.count > 1:
            device = torch.device("cuda", int(variables.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(device)
        self.device = device
        self.abandoned = False  # whether this rank is in a step that others wait for

    @classmethod
    def alone(cls, device: torch.device) -> Self:
        """Return a single process, even under torchrun."""
        return cls(device, {})

    @property
    def first(self) -> bool:
        """Whether this process writes files and prints messages."""
        return self.rank == 0

    @contextmanager
    def process_group(self) -> Iterator[None]:
        """Context manager: join the process group, unless this process is in one already."""
        if self.count == 1 or dist.is_initialized():
            yield
            return
        # torchrun keeps its store when it restarts a group: old addresses must not be read.
        store, rank, count = next(rendezvous("env://"))
        own = PrefixStore(f"attempt-{self.restarts}-{len(KEPT)}", store)
        backend = "nccl" if self.device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=own, rank=rank, world_size=count)
        KEPT.append(dist.group.WORLD)
        yield
        # After an error or an aborted step, collectives may still be running, and torch
        # would wait for them without end: then the group ends with the process.
        if not self.abandoned:
            dist.destroy_process_group()

    def leave(self) -> None:
        """Go on without the other ranks."""
        self.count = 1

    def all_reduce(self, row: Tensor, more: Sequence[float] = ()) -> list[float]:
        """Sums over all ranks, in one collective and one transfer from the device."""
        if self.count == 1:
            return [*row.tolist(), *more]
        row = torch.cat([row, torch.tensor(more, dtype=row.dtype, device=row.device)])
        dist.all_reduce(row)
        return list(row.tolist())

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Sums of plain numbers over all ranks."""
        return self.all_reduce(torch.zeros(0, dtype=torch.float64, device=self.device), numbers)

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        if self.count > 1:
            dist.barrier()

    def broadcast(self, value: Any) -> Any:
        """The first rank's value."""
        values = [value]
        if self.count > 1:
            dist.broadcast_object_list(values, src=0, device=self.device)
        return values[0]

    def collect(self, value: Any) -> list[Any]:
        """A list with the value of every rank; that of rank 0 comes first."""
        values = [value] * self.count
        if self.count > 1:
            dist.all_gather_object(values, value)
        return values

    def run_on_first(self, job: Callable[[], Any]) -> Any:
        """Run a function on the first rank only; all ranks get its result or raise its error."""
        if self.count == 1:
            return job() if self.first else None
        result, fault = None, ""
        if self.first:
            try:
                result = job()
            except BertsmithError as error:
                fault = error.message
        result, fault = self.broadcast((result, fault))
        if fault:
            raise BertsmithError(fault)
        return result

    def wrap(
        self,
        module: nn.Module,
        parallel: str,
        precision: Precision,
        *,
        checkpointing: bool = False,
        tables: Sequence[nn.Embedding] = (),
    ) -> nn.Module:
        """The module as it computes: in a precision, replicated (ddp) or sharded.

        Shards are over all ranks (fsdp), or over those of each machine, which has a copy (hsdp).
        With `checkpointing`, layers recompute their activations. Of `tables` only rows are cast.
        """
        blocks, unused = blocks_of(module), bool(getattr(module, "leaves_unused", False))
        if checkpointing:
            checkpoint_blocks(module)
            if precision.compute is not torch.float32:
                module = Autocast(module, self.device, precision.compute)
            precision = Precision()
        if self.count == 1:
            return precision.wrap(module, tables)
        if parallel == "ddp":
            wrapped = precision.wrap(module)
            return nn.parallel.DistributedDataParallel(wrapped, find_unused_parameters=unused)
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        copies, rest = divmod(self.count, self.near)
        if parallel == "hsdp" and rest:
            raise BertsmithError("hsdp needs as many processes on each machine")
        sizes = (copies, self.near) if parallel == "hsdp" else (self.count,)
        names = ("copies", "shards")[-len(sizes) :]
        mesh = init_device_mesh(self.device.type, sizes, mesh_dim_names=names)
        for part in (*blocks, module):
            fully_shard(part, mesh=mesh)
        cast_in_units(module, blocks, precision)
        return module

    def no_sync(self, module: Any, last: bool) -> AbstractContextManager[Any]:
        """Accumulate gradients locally until the last micro-batch of a step."""
        if isinstance(module, nn.parallel.DistributedDataParallel) and not last:
            return module.no_sync()
        if self.count > 1 and hasattr(module, "set_requires_gradient_sync"):
            module.set_requires_gradient_sync(last)
        return nullcontext()

    def gather(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Full tensors in CPU memory on the first rank; nothing on other ranks."""
        gathered = {}
        for name, tensor in tensors.items():
            sharded: Any = tensor
            full = sharded.full_tensor() if is_sharded(tensor) else tensor
            if self.first:
                gathered[name] = full.detach().cpu().contiguous()
        return gathered


class GatherRows(torch.autograd.Function):
    """Concatenate the rows (n, ...) of all ranks; each rank gets the gradients of its own rows.

    `counts` is the number of rows of each rank. Every rank computes the whole loss and divides it
    by the number of ranks. DDP and FSDP average gradients, but a sum is needed here: backward
    multiplies by the number of ranks.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: tuple[int, ...], rank: int) -> Tensor:
        """All rows (sum of counts, ...)."""
        ctx.first, ctx.counts, ctx.rank = sum(counts[:rank]), counts, rank
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: counts[rank]] = rows[: counts[rank]]
        gathered = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(gathered, padded)
        return torch.cat([rows[:count] for rows, count in zip(gathered, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """The gradients of this rank's rows."""
        own = ctx.counts[ctx.rank]
        return gradient[ctx.first : ctx.first + own] * len(ctx.counts), None, None


def is_sharded(tensor: Any) -> bool:
    """Return whether this tensor is sharded over the ranks (FSDP)."""
    return hasattr(tensor, "full_tensor")


def shards_of(parameters: Iterable[Any]) -> int:
    """Into how many shards tensors are divided; 1 if they are not."""
    meshes = (parameter.device_mesh for parameter in parameters if is_sharded(parameter))
    return max((mesh.size(mesh.ndim - 1) for mesh in meshes), default=1)


def assign(tensor: Tensor, value: Tensor) -> None:
    """Copy a full value into a tensor, or this rank's shard of it."""
    with torch.no_grad():
        if not is_sharded(tensor):
            tensor.copy_(value)
            return
        from torch.distributed.tensor import distribute_tensor

        sharded: Any = tensor
        placed = value.to(sharded.device)
        sharded.copy_(distribute_tensor(placed, sharded.device_mesh, sharded.placements))


def reshard(module: nn.Module) -> None:
    """Free gathered copies of parameters that were changed in place (FSDP)."""
    sharded: Any = (part for part in module.modules() if hasattr(part, "reshard"))
    for part in sharded:
        part.reshard()
