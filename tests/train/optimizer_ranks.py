"""Trains a small module with every optimizer on two and on four gloo processes.

    python optimizer_ranks.py FOLDER

Writes one file of final weights for each optimizer and way of training: alone, ddp, and fsdp,
whose optimizer state is gathered halfway and distributed again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch._dynamo  # the first step of an optimizer would import it
import torch.distributed as dist
from forked import forked
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from bertsmith.train.optimizer import OPTIMIZERS, CompositeOptimizer, optimizer_for

torch.set_num_threads(1)
STEPS, SAMPLES = 20, 24


class Net(nn.Module):
    """Few rows, so that shards are uneven or empty: 1, 3, 5 and 7 of them on 2 or 4 ranks.

    Each layer solves a regression of its own: a deep network would amplify rounding.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(7, 5)
        shapes = [(3, 5), (5, 3), (3, 1), (3, 5), (5, 3)]
        self.blocks = nn.ModuleList([nn.Linear(*shape) for shape in shapes])
        self.norm = nn.LayerNorm(5)
        self.head = nn.Linear(5, 1)

    def forward(self, ids: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """The sum of squared errors."""
        outputs = [block(inputs[:, : block.in_features]) for block in self.blocks]
        outputs += [self.table(ids), self.norm(inputs), self.head(inputs)]
        errors = [(y - targets[:, : y.shape[-1]]).square().sum() for y in outputs]
        return torch.stack(errors).sum()


def train(name: str, how: str, rank: int, world: int) -> dict[str, Tensor]:
    """The weights after some steps on this rank's part of the samples."""
    net, count = Net(), 1 if how == "alone" else world
    module: Any = net
    if how == "ddp":
        module = nn.parallel.DistributedDataParallel(net)
    elif how == "fsdp":
        mesh = init_device_mesh("cpu", (world,))
        for part in (net.blocks[0], net):
            fully_shard(part, mesh=mesh)
    options = SimpleNamespace(
        layer_decay=1.0,
        optimizer=name,
        learning_rate=0.01,
        matrix_learning_rate=0.02,
        weight_decay=0.1,
        betas=(0.9, 0.99),
        epsilon=1e-6,
        precision="float32",
    )
    optimizer = optimizer_for(net, options)
    random = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        ids = torch.randint(0, 7, (SAMPLES,), generator=random)
        inputs, targets = torch.randn(2, SAMPLES, 5, generator=random).unbind()
        own = slice(None) if how == "alone" else slice(rank, None, world)
        optimizer.clear()
        # Gradients are averaged over the ranks; the loss is a sum over all of them.
        (module(ids[own], inputs[own], targets[own]) * (count / SAMPLES)).backward()
        optimizer.step()
        if how == "fsdp" and step == STEPS // 2:
            optimizer = reloaded(optimizer, net, options)
    return {n: full(p.detach()).clone() for n, p in net.named_parameters()}


def reloaded(optimizer: CompositeOptimizer, net: nn.Module, options: Any) -> CompositeOptimizer:
    """A new optimizer with the state of another, by way of full tensors."""
    states = {p: {key: full(v) for key, v in state.items()} for p, state in optimizer.states()}
    fresh = optimizer_for(net, options)
    for parameter, state in fresh.states():
        for key, value in states[parameter].items():
            if value.ndim:
                assert isinstance(parameter, DTensor)
                shards = distribute_tensor(value, parameter.device_mesh, parameter.placements)
                state[key] = torch.zeros_like(parameter).copy_(shards)
            else:
                state[key] = value.clone()
    return fresh


def full(tensor: Any) -> Tensor:
    """A tensor in full, however it is laid out."""
    whole: Tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return whole


def main(rank: int, world: int, folder: Path) -> None:
    """All runs of one rank."""
    dist.init_process_group("gloo", rank=rank, world_size=world)
    for name in OPTIMIZERS:
        for how in ("alone", "ddp", "fsdp"):
            weights = train(name, how, rank, world)
            if rank == 0:
                torch.save(weights, folder / f"{name}-{how}.pt")
    dist.destroy_process_group()


def in_processes(world: int, folder: Path) -> list[int]:
    """Run all ranks; returns their exit statuses."""
    folder.mkdir()
    return forked(world, lambda rank: main(rank, world, folder))


if __name__ == "__main__":
    statuses = [in_processes(world, Path(sys.argv[1]) / str(world)) for world in (2, 4)]
    sys.exit(any(any(ended) for ended in statuses))
