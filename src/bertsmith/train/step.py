"""One training step: micro-batches, one collective over ranks, clipping, guard, update."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from bertsmith.model.attention import Attention, BiasedAttention
from bertsmith.train.comparing import Comparing
from bertsmith.train.distributed import Ranks, assign, is_sharded, shards_of
from bertsmith.train.guard import OVERFLOW, Guard, LossScale
from bertsmith.train.optimizer import CompositeOptimizer, local_shard
from bertsmith.train.stopping import Stop

LARGE = 4096  # rows of an embedding table; the cost of smaller ones is negligible


class MicroBatch(NamedTuple):
    """The arguments of one pass; inactive ones only take part in the collectives."""

    inputs: tuple[Any, ...]
    active: bool = True


class StepResult(NamedTuple):
    """The result of a step over all micro-batches and ranks."""

    loss: float
    gradient_norm: float  # before clipping
    sums: dict[str, tuple[float, float]]  # the pairs that the module reports
    skipped: str  # why the step was skipped; empty if it was not
    extras: Sequence[float] = ()  # sums of the caller's `extras`
    scale: float = 0.0  # of the loss, in float16


class TrainingStep:
    """Accumulate gradients over micro-batches, then update the weights once.

    `module` returns a loss, already divided by the counts over all ranks and micro-batches, and
    pairs to report. `before_step` and `after_step` of `objectives` are called around the update.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: CompositeOptimizer,
        ranks: Ranks,
        *,
        clip: float = 1.0,
        guard: Guard | None = None,
        scale: LossScale | None = None,
        objectives: Iterable[Any] = (),
        tables: Sequence[nn.Embedding] = (),
        compiled: bool = False,
    ) -> None:
        self.module, self.optimizer, self.ranks, self.clip = module, optimizer, ranks, clip
        self.guard, self.objectives = guard or Guard(), list(objectives)
        self.scale = scale  # with float16
        self.comparing = next((own for own in self.objectives if own.compares), None)
        self.tables, self.compiled = TableGradients(tables), compiled
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.key_biases = KeyBiases(module)
        self.sharded = any(is_sharded(parameter) for parameter in self.parameters)
        self.copies = ranks.count / shards_of(self.parameters)  # of each gradient
        self.computing = False  # can be interrupted safely

    def __call__(
        self, micro_batches: Sequence[MicroBatch], extras: Callable[[], Sequence[float]] = tuple
    ) -> StepResult:
        """Run a step; `extras` returns numbers to sum over the ranks, called after backward."""
        try:
            self.computing = True
            names, reported = self._gradients(micro_batches)
        except Stop:
            self.optimizer.clear()
            raise
        finally:
            self.computing = False
        self.key_biases.clear()
        gradients = self.tables.gather()
        gradients += [local_shard(p.grad) for p in self.parameters if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        # Squared norms of shards add up; copies are equal, so their mean is the value.
        norm = (norm.square() if self.sharded else norm) / self.copies
        row = wide(torch.cat([norm.reshape(1), reported]))
        norm_sum, loss, *sums = self.ranks.all_reduce(row, extras())
        scale = self.scale.value if self.scale else 1.0
        total = (norm_sum**0.5 if self.sharded else norm_sum) / scale
        pairs = {name: (sums[2 * n], sums[2 * n + 1]) for n, name in enumerate(names)}
        overflow = self.scale is not None and self.scale.overflows(total, loss)
        skipped = OVERFLOW if overflow else self.guard.check(total, loss)
        if not skipped:
            self._update(gradients, total, scale)
        self.optimizer.clear()
        self.tables.clear()
        extra = sums[2 * len(names) :]
        return StepResult(loss, total, pairs, skipped, extra, scale if self.scale else 0.0)

    def _gradients(self, micro_batches: Sequence[MicroBatch]) -> tuple[list[str], Tensor]:
        """Backward through this rank's micro-batches; returns names, and sums of loss and pairs."""
        names: list[str] = []
        rows: list[Tensor] = []
        comparing = None
        if self.comparing is not None and (len(micro_batches) > 1 or self.ranks.count > 1):
            examples = [(batch.inputs[0], batch.active) for batch in micro_batches]
            comparing = Comparing(self.module, self.comparing, self.ranks, examples)
        for number, (inputs, active) in enumerate(micro_batches):
            compare = () if comparing is None else (comparing.of(number),)
            with self.ranks.no_sync(self.module, number + 1 == len(micro_batches)):
                if self.compiled:
                    torch.compiler.cudagraph_mark_step_begin()
                loss, pairs = self.module(*inputs, *compare)
                # DDP and FSDP average gradients; the loss is a sum over ranks.
                scale = self.scale.value if self.scale else 1.0
                (loss * (self.ranks.count * scale if active else 0.0)).backward()
            names = list(pairs)
            row = torch.cat([loss.detach().reshape(1), *(pairs[name] for name in names)])
            rows.append(row if active else torch.zeros_like(row))
        return names, torch.stack(rows).sum(0) if len(rows) > 1 else rows[0]

    def _update(self, gradients: list[Tensor], norm: float, scale: float) -> None:
        clipped = self.clip / norm if self.clip and norm > self.clip else 1.0
        if clipped != scale:
            torch._foreach_mul_(gradients, clipped / scale)
        self.tables.place()
        for objective in self.objectives:
            objective.before_step()
        self.optimizer.step()
        for objective in self.objectives:
            objective.after_step()


class KeyBiases:
    """The biases of key projections, in attention that adds no positions to keys.

    Such a bias adds the same number to all scores of a query, which softmax ignores. Its gradient
    is 0 but for rounding errors. Adam scales these up to full steps, which differ on each device.
    """

    KINDS = (Attention, BiasedAttention)

    def __init__(self, module: nn.Module) -> None:
        # Joint biases of queries, keys and values; and masks that are 0 at keys.
        self.biases: list[tuple[nn.Parameter, Tensor]] = []
        for part in module.modules():
            bias = getattr(part.qkv, "bias", None) if type(part) in self.KINDS else None
            if isinstance(bias, nn.Parameter) and bias.requires_grad:
                mask = torch.ones_like(bias.data)
                full = torch.ones(bias.shape)
                full[len(full) // 3 : 2 * len(full) // 3] = 0
                assign(mask, full)
                self.biases.append((bias, mask))

    def clear(self) -> None:
        """Set their gradients to 0."""
        pairs = [(bias.grad, mask) for bias, mask in self.biases if bias.grad is not None]
        if pairs:
            gradients, masks = zip(*pairs, strict=True)
            torch._foreach_mul_(list(map(local_shard, gradients)), list(map(local_shard, masks)))


def large_tables(model: nn.Module) -> list[nn.Embedding]:
    """Return large trainable embedding tables that are not tied to an output layer."""
    owners: dict[nn.Parameter, list[nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(parameter, []).append(module)
    tables = [modules[0] for modules in owners.values() if len(modules) == 1]
    large = (t for t in tables if type(t) is nn.Embedding and t.num_embeddings > LARGE)
    return [table for table in large if table.weight.requires_grad]


class TableGradients:
    """Dense gradients of embedding tables, computed from sparse ones.

    For dense gradients torch fills a table with zeros in each backward pass, a tenth of the time
    of a step on a CPU. Here the rows that a step reads are copied into a table that is reused.
    """

    def __init__(self, tables: Sequence[nn.Embedding]) -> None:
        self.tables = tables
        self.dense = [torch.zeros_like(table.weight) for table in tables]
        self.sparse: list[tuple[Tensor, Tensor]] = []  # of each table: rows, and their gradients
        for table in tables:
            table.sparse = True

    def gather(self) -> list[Tensor]:
        """Collect the sparse gradients of a step, each row once; returns their values."""
        self.sparse = []
        for table in self.tables:
            assert table.weight.grad is not None
            rows = table.weight.grad.coalesce()
            self.sparse.append((rows.indices()[0], rows.values()))
            table.weight.grad = None
        return [values for _, values in self.sparse]

    def place(self) -> None:
        """Set the tables' gradients from the collected values, which may have been clipped."""
        for table, dense, (rows, values) in zip(self.tables, self.dense, self.sparse, strict=True):
            dense[rows] = values
            table.weight.grad = dense

    def clear(self) -> None:
        """Zero the collected rows."""
        for dense, (rows, _) in zip(self.dense, self.sparse, strict=True):
            dense[rows] = 0.0

    def close(self) -> None:
        """Restore dense gradients in torch."""
        for table in self.tables:
            table.sparse = False


def seed_step(seed: int, device: torch.device) -> None:
    """Seed torch's generators for a step on this device.

    `torch.manual_seed` also formats a stack trace for each kind of accelerator that is not in use,
    which takes a millisecond or more: too long for the steps of a CPU.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def wide(row: Tensor) -> Tensor:
    """Return a row in float64, on the CPU if the device does not support it."""
    return row.double() if row.device.type in ("cpu", "cuda") else row.cpu().double()


def allow_signals(blocks: Iterable[nn.Module]) -> list[RemovableHandle]:
    """Let Python handle signals between the blocks of a backward pass, not only after it.

    On a CPU a backward pass may take minutes in which no Python code runs. Returns the hooks.
    """

    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(lambda gradient: None)

    return [block.register_forward_hook(hook) for block in blocks]
