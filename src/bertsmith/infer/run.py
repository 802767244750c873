"""Thousands of inputs through a model: sorted by length, packed to a budget, back in order."""

import copy
import sys
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.windows import Window
from bertsmith.model import Hidden, Model

if TYPE_CHECKING:
    from rich.progress import Progress

    from bertsmith.train.distributed import Ranks

Item = TypeVar("Item")
Result = TypeVar("Result")
Compute = Callable[[Model, Hidden, Batch, Sequence[Window]], Sequence[Result]]
Plan = list[list[int]]  # the windows of each batch
Work = Callable[[Model, torch.device, list[int]], None]  # on a batch

# Tokens in a batch. On a CPU few enough for the states to stay in cache, on a GPU enough to
# keep it busy.
BUDGETS = {"cpu": 2048, "cuda": 65536}
STEP = 64
# Batches for which a device gets a copy of the model. On a GPU with 400 Tflop/s in bfloat16 and
# 25 GB/s to the next one, copying takes as long as encoding 16,000 tokens.
LEAST = 4


class InferencePass(NamedTuple):
    """Windows that a task needs encoded, and what it computes from their hidden states.

    `compute` returns one result for each window of a batch, in CPU memory. It gets the model that
    has encoded the batch, which may be a copy on another device. A server encodes passes of one
    model with equal `key` together.
    """

    windows: Sequence[Window]
    compute: Compute[Any]
    key: Hashable


# A task as a generator: it yields the passes it needs and receives a result for each window.
Steps = Generator[InferencePass, list[Any], Result]


def run(
    model: Model,
    windows: Sequence[Window],
    compute: Compute[Result],
    *,
    devices: Sequence[torch.device],
    ranks: "Ranks | None" = None,
    budget: int | None = None,
    progress: bool | None = None,
) -> list[Result]:
    """Encode every window and let `compute` make one result of each.

    Longest come first, so that a batch which does not fit fails at once. The model is on the first
    of `devices`; the others get copies of it if there are enough batches. Several `ranks` divide
    the batches: all must call this with the same windows, and all get all results.
    """
    if model.encoder.changes or model.encoder.skipped:  # these hold tensors of its device
        devices = devices[:1]
    budget = budget or BUDGETS.get(devices[0].type, 2048)
    plan = list(packed([len(window.ids) for window in windows], budget))
    if ranks is None or ranks.count == 1:
        results = _encoded(model, windows, compute, devices, progress, plan)
    else:
        shown = progress if ranks.first else False
        job = partial(_encoded, model, windows, compute, devices[:1], shown)
        sharded = any(hasattr(one, "full_tensor") for one in model.parameters())
        results = _on_ranks(job, plan, ranks, sharded)
    return [results[number] for number in range(len(windows))]


def _encoded(
    model: Model,
    windows: Sequence[Window],
    compute: Compute[Result],
    devices: Sequence[torch.device],
    progress: bool | None,
    plan: Plan,
) -> dict[int, Result]:
    results: dict[int, Result] = {}

    def work(model: Model, device: torch.device, chosen: list[int]) -> None:
        group = [windows[number] for number in chosen]
        hidden, batch = encode(model, group, device)
        outputs = compute(model, hidden, batch, group)[: len(group)]
        results.update(zip(chosen, outputs, strict=True))
        advance(sum(len(window.ids) for window in group))

    total = sum(len(windows[number].ids) for number in chain.from_iterable(plan))
    with token_bar(total, len(plan), progress) as advance:
        _on_devices(work, model, devices[: max(1, len(plan) // LEAST)], plan)
    return results


def _on_devices(work: Work, model: Model, devices: Sequence[torch.device], plan: Plan) -> None:
    """Work through a plan on all devices, each in its own thread; the first error ends all."""
    left: SimpleQueue[list[int]] = SimpleQueue()
    for chosen in plan:
        left.put(chosen)
    errors: list[BaseException] = []

    def take(device: torch.device, own: Model | None = None) -> None:
        # Triton starts its programs on the thread's current device.
        current = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
        try:
            with torch.inference_mode(), current:
                # A copy is not kept: it could miss a change of the weights.
                own = copied(model, device) if own is None else own
                while not errors:
                    work(own, device, left.get_nowait())
        except Empty:
            return
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            errors.append(error)

    threads = [Thread(target=take, args=(device,), daemon=True) for device in devices[1:]]
    for thread in threads:
        thread.start()
    take(devices[0], model)
    for thread in threads:
        thread.join()
    try:
        if errors:
            raise errors[0]
    finally:
        errors.clear()  # frames that its traceback holds would hold it, and the batch's memory


def copied(model: Model, device: torch.device) -> Model:
    """A copy of a model for inference on a device; parameters that are shared stay shared."""
    moved: dict[int, Any] = {}  # what `deepcopy` takes in place of tensors
    for weight in model.parameters():
        moved[id(weight)] = nn.Parameter(weight.to(device, copy=True), requires_grad=False)
    for buffer in model.buffers():
        moved[id(buffer)] = buffer.to(device, copy=True)
    return copy.deepcopy(model, moved)


def _on_ranks(
    job: Callable[[Plan], dict[int, Result]], plan: Plan, ranks: "Ranks", sharded: bool
) -> dict[int, Result]:
    """Every rank computes some batches of the plan; all get all results, or an error.

    All compute equally many batches, since every pass of a sharded model is a collective: ranks
    with one batch less repeat the shortest and discard its results.
    """
    own = plan[ranks.rank :: ranks.count]
    spare = plan[-1:] * (-(-len(plan) // ranks.count) - len(own))
    results: dict[int, Any] = {}
    failure: Exception | None = None
    try:
        computed = job([*own, *spare])
        # As arrays: a tensor that is a row of a batch would be sent with the whole batch.
        for number in chain.from_iterable(own):
            result: Any = computed[number]
            results[number] = result.numpy() if isinstance(result, Tensor) else result
    except Exception as error:
        if sharded:  # the other ranks wait in a collective, which ends with this process
            raise
        failure = error
    gathered = ranks.collect((results, failure and f"{type(failure).__name__}: {failure}"))
    if failure is not None:
        raise failure
    for rank, (others, message) in enumerate(gathered):
        if message:
            raise BertsmithError(f"rank {rank} failed with {message}")
        results |= others
    for number, result in results.items():
        results[number] = torch.from_numpy(result) if isinstance(result, np.ndarray) else result
    return results


def encode(model: Model, windows: Sequence[Window], device: torch.device) -> tuple[Hidden, Batch]:
    """The hidden states of windows, and their batch, which may end with padding sequences."""
    ids, segments = [window.ids for window in windows], [window.segments for window in windows]
    # On a CPU in half precision oneDNN compiles a kernel for each new number of rows, which takes
    # longer than to run it: there are few different numbers.
    half = device.type == "cpu" and model.encoder.table.dtype != torch.float32
    # Padding sequences are no longer than the longest window: position tables are finite.
    spare, longest = -sum(map(len, ids)) % (STEP if half else 1), max(map(len, ids))
    fillers = [[0] * min(longest, spare - start) for start in range(0, spare, longest)]
    batch = Batch.of([*ids, *fillers], [*segments, *fillers]).to(device)
    return model.encoder(batch), batch


def packed(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices in order of falling length, in groups of at most `budget` tokens."""
    length = lengths.__getitem__
    return grouped(sorted(range(len(lengths)), key=length, reverse=True), length, budget)


def grouped(items: Iterable[Item], size: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Neighbours in groups whose sizes add up to at most `most`; a larger item is alone."""
    group: list[Item] = []
    total = 0
    for item in items:
        if group and total + size(item) > most:
            yield group
            group, total = [], 0
        group.append(item)
        total += size(item)
    if group:
        yield group


@contextmanager
def token_bar(total: int, batches: int, wanted: bool | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, where a person watches and there is something to see."""
    if wanted is None:
        wanted = sys.stderr.isatty() and batches > 4
    if not wanted:
        yield lambda tokens: None
        return
    with bar_of("{task.completed:,.0f} of {task.total:,.0f} tokens") as bar:
        task = bar.add_task("", total=total)
        yield lambda tokens: bar.advance(task, tokens)


def bar_of(text: str) -> "Progress":
    """A progress bar on standard error with a text and the time left; it vanishes at its end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = BarColumn(), TextColumn(text), TimeRemainingColumn()
    return Progress(*columns, console=Console(stderr=True), transient=True)
