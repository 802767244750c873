"""Batches prepared ahead of time by threads, in order."""

import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol

from bertsmith.examples.draw import Numbers
from bertsmith.examples.example import Example, Examples, StepPlan

AHEAD = 4  # steps that workers prepare
SWITCH = 5e-4  # seconds between thread switches, a tenth of Python's default


@contextmanager
def quick_switches() -> Iterator[None]:
    """Switch threads often, so that a GPU does not wait for the GIL while batches are made."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class BatchRequest(Protocol):
    """What a step asks for: how its samples are divided over ranks, and batches of them."""

    def plan(self, position: int, ranks: int) -> StepPlan:
        """The micro-batches of the step that starts at a position."""

    def make(self, part: Any) -> Any:
        """The batch of a micro-batch."""

    def spare(self, plan: StepPlan) -> Any:
        """A micro-batch for ranks that have none."""


class StepRequest(NamedTuple):
    """The samples that a step of pre-training requests."""

    examples: Examples
    tokens: int  # of all ranks together
    micro_tokens: int  # of one pass of one rank
    fill: int = 1  # batches are padded to a multiple of this number of tokens

    def plan(self, position: int, ranks: int) -> StepPlan:
        """Return the samples of the step, starting at a position."""
        sizes = {"tokens": self.tokens, "micro_tokens": self.micro_tokens, "fill": self.fill}
        return self.examples.plan(position, ranks=ranks, **sizes)

    def make(self, part: Numbers) -> Example:
        """The batch of some samples."""
        return self.examples.make(part, self.fill)

    def spare(self, plan: StepPlan) -> Numbers:
        """The first sample of the step, or the first pair."""
        return plan.samples[: self.examples.source.group]


class LoadedStep(NamedTuple):
    """One rank's micro-batches of a step; inactive ones have no samples of this rank."""

    plan: StepPlan
    examples: list[Any]
    active: list[bool]

    @property
    def tokens(self) -> int:
        """The tokens of this rank's own samples."""
        return sum(e.tokens for e, own in zip(self.examples, self.active, strict=True) if own)


class Loader:
    """Iterate over the steps from a position on, for one of several ranks.

    Without workers, batches are made when they are asked for: on a GPU that is while it computes.
    If a step has fewer samples than ranks, a rank without samples gets a spare one, marked as
    inactive: all ranks must make the same number of passes.
    """

    def __init__(
        self,
        request: Callable[[int], BatchRequest | None],
        *,
        step: int = 0,
        position: int = 0,
        rank: int = 0,
        ranks: int = 1,
        workers: int = 2,
        pin: bool = False,
    ) -> None:
        self.request, self.step, self.position = request, step, position
        self.rank, self.ranks, self.pin = rank, ranks, pin
        self.ahead = AHEAD if workers else 1
        self.pool = ThreadPoolExecutor(workers, "examples") if workers else None
        self.queue: deque[tuple[StepPlan, list[Callable[[], Any]], list[bool]]] = deque()

    def next(self) -> LoadedStep | None:
        """Return the next step, or None at the end."""
        while len(self.queue) < self.ahead and self._order():
            pass
        if not self.queue:
            return None
        plan, results, active = self.queue.popleft()
        return LoadedStep(plan, [result() for result in results], active)

    def close(self) -> None:
        """Stop the workers."""
        if self.pool is not None:
            self.pool.shutdown(wait=True, cancel_futures=True)

    def _order(self) -> bool:
        """Queue the next step; False if there is none."""
        request = self.request(self.step)
        if request is None:
            return False
        plan = request.plan(self.position, self.ranks)
        own = plan.micro_batches[self.rank]
        active = [len(part) > 0 for part in own]
        parts = [part if len(part) else request.spare(plan) for part in own]
        jobs: list[Callable[[], Any]] = [partial(self._make, request, part) for part in parts]
        if self.pool is not None:
            jobs = [self.pool.submit(job).result for job in jobs]
        self.queue.append((plan, jobs, active))
        self.step, self.position = self.step + 1, plan.end
        return True

    def _make(self, request: BatchRequest, part: Any) -> Any:
        example = request.make(part)
        return example.pinned() if self.pin else example
