"""A training step captured and replayed as one CUDA graph.

A step of a small model starts over a thousand kernels, which takes Python longer than it takes the
GPU to run them. The first step of a shape runs as usual. The second is captured: forward, backward,
clipping, guard and optimizer. From then on a step of that shape is one copy and one call. Whether a
step is skipped is decided on the device, and results are read some steps late, so that the host
never waits.
"""

import gc
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.examples import Example
from bertsmith.train.compiling import reads_boundaries
from bertsmith.train.distributed import Ranks
from bertsmith.train.guard import ENOUGH, FAULTS, REMEMBERED
from bertsmith.train.optimizer import CompositeOptimizer
from bertsmith.train.precision import supported
from bertsmith.train.recipe import Recipe
from bertsmith.train.step import KeyBiases, StepResult, seed_step

GRAPHS = 96  # captured shapes; steps of other shapes run as usual
ALIGNED = 16  # alignment of tensors in a buffer, in bytes
ROWS = 1024  # masked tokens are padded to a multiple of this: fewer shapes to capture
IGNORED = -100  # the target of rows without a loss
Spec = tuple[tuple[torch.dtype, tuple[int, ...]], ...]
Build = Callable[[list[Tensor]], tuple[Any, ...]]


class Inputs(NamedTuple):
    """The arguments of one pass: tensors in CPU memory, and how to pass them to the module.

    Passes of one `key` and of tensors of one size differ in the values of their tensors only.
    """

    tensors: list[Tensor]
    build: Build
    key: Hashable = None


@dataclass
class CapturedShape:
    """The steps of one shape: their input on the device, and their graph once it is captured."""

    buffer: Tensor
    graph: Any = None
    steps: int = 0


class DeviceGuard:
    """`Guard`, decided on the device: the number of a fault in FAULTS, 0 for none."""

    def __init__(self, spike: float, device: torch.device) -> None:
        self.spike = spike
        self.recent = torch.full((REMEMBERED,), math.inf, device=device)
        self.count = torch.zeros((), dtype=torch.int64, device=device)  # number of norms recorded

    def load(self, recent: Sequence[float]) -> None:
        """Restore the norms of earlier steps."""
        self.recent.fill_(math.inf)
        self.recent[: len(recent)] = torch.tensor(recent)
        self.count.fill_(len(recent))

    def check(self, loss: Tensor, norm: Tensor) -> Tensor:
        """Return the fault of a step; norms of good steps are recorded."""
        fault = torch.where(norm.isfinite(), 0, 2)
        if math.isfinite(self.spike):
            known = self.count.clamp(max=REMEMBERED)
            places = torch.stack([(known - 1).clamp(min=0) // 2, known // 2])
            median = self.recent.sort().values[places.clamp(max=REMEMBERED - 1)].mean()
            high = (norm > self.spike * median) & (known >= ENOUGH)
            fault = torch.where(high & norm.isfinite(), 3, fault)
        fault = torch.where(loss.isfinite(), fault, 1)
        place = (self.count % REMEMBERED).reshape(1)
        last = torch.where(fault == 0, norm.float(), self.recent.index_select(0, place))
        self.recent.index_copy_(0, place, last)
        self.count.add_(fault == 0)
        return fault


class CapturedStep:
    """Gradients of some passes and one update of the parameters, all decided on the device.

    `module` returns a loss, already divided by the weights of all passes, and pairs to report.
    Off a GPU, and for several passes, nothing is captured. Results are read every `read` steps.
    `advice` is added to the error message if a step cannot be captured.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: CompositeOptimizer,
        device: torch.device,
        *,
        clip: float = 1.0,
        spike: float = math.inf,
        read: int = 32,
        advice: str = "",
    ) -> None:
        self.module, self.optimizer, self.device, self.clip = module, optimizer, device, clip
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.key_biases = KeyBiases(module)
        self.guard, self.read, self.advice = DeviceGuard(spike, device), read, advice
        self.found_inf = optimizer.move_to(device)
        self.names: list[str] = []
        self.rows = torch.zeros(0, device=device)  # results of the last steps, one row each
        self.steps = self.known = 0
        self.pending: tuple[Tensor, Any] | None = None
        self.reset()

    def reset(self) -> None:
        """Discard all graphs, after tensors that they read were replaced."""
        self.shapes: dict[Hashable, CapturedShape] = {}
        self.graphs = 0
        self.pool: Any = None

    def __call__(self, passes: Sequence[Inputs], fraction: float, seed: int) -> list[StepResult]:
        """Run a step at a fraction of the peak learning rate; returns available earlier results.

        All random numbers depend on `seed` alone.
        """
        numbers = [torch.tensor([fraction]), torch.tensor([self.steps % (2 * self.read)])]
        seed_step(seed, self.device)
        if len(passes) == 1 and self.device.type == "cuda":
            self._run(passes[0], numbers)
        else:
            moved = [(inputs.build, self._moved(inputs.tensors)) for inputs in passes]
            self._compute(moved, *self._moved(numbers))
            self.optimizer.clear()
        self.steps += 1
        return self._results() if self.steps % self.read == 0 else []

    def finish(self) -> list[StepResult]:
        """Wait for all steps; returns the remaining results."""
        return self._results() + self._results()

    def _run(self, inputs: Inputs, numbers: list[Tensor]) -> None:
        """Replay the graph of this shape; the second step of a shape captures it."""
        packed, spec = pack([*numbers, *inputs.tensors], pin=True)
        shape = self.shapes.get((inputs.key, spec))
        if shape is None:
            shape = CapturedShape(torch.empty_like(packed, device=self.device))
            self.shapes[inputs.key, spec] = shape
        shape.buffer.copy_(packed, non_blocking=True)
        shape.steps += 1
        if shape.graph is not None:
            shape.graph.replay()
            return
        fraction, slot, *rest = unpack(shape.buffer, spec)
        if shape.steps == 1 or self.graphs == GRAPHS:
            self._compute([(inputs.build, rest)], fraction, slot)
        else:
            self.graphs += 1
            self.pool = self.pool or torch.cuda.graph_pool_handle()
            shape.graph = torch.cuda.CUDAGraph()
            try:
                with garbage_kept(), torch.cuda.graph(shape.graph, pool=self.pool):
                    self._compute([(inputs.build, rest)], fraction, slot)
            except torch.AcceleratorError as error:
                why = f"a step cannot be captured as a CUDA graph ({str(error).splitlines()[0]})"
                raise BertsmithError(f"{why}; {self.advice}") from error
            shape.graph.replay()
        self.optimizer.clear()  # the memory of gradients is reused by the next graph

    def _compute(
        self, passes: Sequence[tuple[Build, list[Tensor]]], fraction: Tensor, slot: Tensor
    ) -> None:
        reported = []
        for build, tensors in passes:
            loss, pairs = self.module(*build(tensors))
            loss.backward()
            self.names = list(pairs)
            parts = [loss.detach().reshape(1), *pairs.values()]
            reported.append(torch.cat([part.float() for part in parts]))
        self.key_biases.clear()
        sums = torch.stack(reported).sum(0)
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        fault = self.guard.check(sums[0], norm)
        self.found_inf.copy_(fault > 0)
        if self.clip:
            torch._foreach_mul_(gradients, (self.clip / norm).clamp(max=1.0))
        self.optimizer.set_device_rate(fraction)
        self.optimizer.step()
        row = torch.cat([norm.float().reshape(1), fault.float().reshape(1), sums])
        if not len(self.rows):
            self.rows = row.new_zeros(2 * self.read, len(row))
        self.rows.index_copy_(0, slot, row[None])

    def _moved(self, tensors: list[Tensor]) -> list[Tensor]:
        if self.device.type != "cuda":
            return [tensor.to(self.device) for tensor in tensors]
        packed, spec = pack(tensors, pin=True)
        return unpack(packed.to(self.device, non_blocking=True), spec)

    def _results(self) -> list[StepResult]:
        """Return the rows requested last time, and request those of the steps since then."""
        results: list[StepResult] = []
        if self.pending is not None:
            rows, event = self.pending
            if event is not None:
                event.synchronize()
            results = [self._result(row) for row in rows.tolist()]
            self.pending = None
        if count := self.steps - self.known:
            first = self.known % len(self.rows)  # reads do not wrap around the end of the table
            recent = self.rows[first : first + count]
            if self.device.type == "cuda":
                self.pending = recent.to("cpu", non_blocking=True), torch.cuda.Event()
                self.pending[1].record()
            else:
                self.pending = recent.clone(), None
            self.known = self.steps
        return results

    def _result(self, row: list[float]) -> StepResult:
        norm, fault, loss, *sums = row
        pairs = {name: (sums[2 * n], sums[2 * n + 1]) for n, name in enumerate(self.names)}
        return StepResult(loss, norm, pairs, FAULTS[int(fault)])


@contextmanager
def garbage_kept() -> Iterator[None]:
    """No garbage collection: freeing the graphs of an earlier run would end a capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def pack(tensors: Sequence[Tensor], pin: bool = False) -> tuple[Tensor, Spec]:
    """Pack tensors into one byte buffer, moved by a single copy; also returns its layout."""
    spec = tuple((tensor.dtype, tuple(tensor.shape)) for tensor in tensors)
    size = sum(-(-tensor.nbytes // ALIGNED) * ALIGNED for tensor in tensors)
    buffer = torch.empty(size, dtype=torch.uint8, pin_memory=pin)
    for view, tensor in zip(unpack(buffer, spec), tensors, strict=True):
        view.copy_(tensor)
    return buffer, spec


def unpack(buffer: Tensor, spec: Spec) -> list[Tensor]:
    """The tensors in a buffer, as views of it."""
    tensors, begin = [], 0
    for dtype, shape in spec:
        size = torch.Size(shape).numel() * dtype.itemsize
        tensors.append(buffer[begin : begin + size].view(dtype).view(shape))
        begin += -(-size // ALIGNED) * ALIGNED
    return tensors


def can_replay(recipe: Recipe, learner: Any, ranks: Ranks) -> bool:
    """Return whether the steps of this run can be captured and replayed on one GPU."""
    train = recipe.train
    return (
        ranks.device.type == "cuda"
        and ranks.count == 1
        and train.compile
        and train.graphs
        and supported(train.precision, ranks.device) in ("bfloat16", "fp8")
        and train.optimizer in ("adamw", "muon")
        and not train.ema
        and not train.checkpointing
        and train.micro_tokens >= max(tokens for _, tokens, _ in recipe.lengths())
        and all(objective.capturable for objective in learner.objectives)
        and reads_boundaries(learner)
    )


def inputs_of(example: Example, counts: Mapping[str, float]) -> Inputs:
    """Return an example as tensors, padded to a few sizes."""
    batch, layout = example.batch, example.batch.layout
    rows, targets, filled = _padded(example)
    sequences = len(layout.ends) - 1
    names, numbers = tuple(counts), torch.tensor([float(count) for count in counts.values()])
    tensors = [batch.ids, batch.segments, layout.ends, layout.positions]
    tensors += [rows, targets, numbers, torch.tensor(example.tokens)]
    optional = {} if example.judged is None else {"judged": example.judged}
    if example.labels is not None:
        spare = example.labels.new_full((sequences - len(example.labels),), IGNORED)
        optional["labels"] = torch.cat([example.labels, spare])
    tensors += optional.values()

    def build(tensors: list[Tensor]) -> tuple[Any, ...]:
        ids, segments, ends, positions, rows, targets, numbers, total, *others = tensors
        # Empty sequences at the end begin at the last token, so that heads may read a first state.
        starts = ends.clamp(max=len(ids) - 1)
        on_device = replace(layout, boundaries=starts, ends=ends, positions=positions)
        changes: dict[str, Any] = dict(zip(optional, others, strict=True))
        changes |= {"rows": rows, "targets": targets, "filled": filled, "samples": sequences}
        changes["tokens"] = total  # known on the device: it differs by step
        padded = replace(example, batch=Batch(ids, segments, on_device), **changes)
        return padded, dict(zip(names, numbers.unbind(), strict=True))

    return Inputs(tensors, build, (layout.most, layout.full, names, filled, *optional))


def _padded(example: Example) -> tuple[Tensor, Tensor, int | None]:
    """Pad masked tokens to a few sizes: those that a generator fills, and the others."""
    cuts = [0, *([] if example.filled is None else [example.filled]), len(example.rows)]
    rows, targets = [], []
    for first, last in pairwise(cuts):
        spare = -(-max(1, last - first) // ROWS) * ROWS - (last - first)
        rows += [example.rows[first:last], torch.zeros(spare, dtype=torch.int64)]
        targets += [example.targets[first:last], torch.full((spare,), IGNORED)]
    filled = None if example.filled is None else len(rows[0]) + len(rows[1])
    return torch.cat(rows), torch.cat(targets), filled
