"""Batches prepared ahead of time by threads, in order."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from bertsmith.examples.draw import Numbers
from bertsmith.examples.example import Example, Examples, StepPlan

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


class StepRequest(NamedTuple):
    """The samples that a step requests."""

    examples: Examples
    tokens: int  # of all ranks together
    micro_tokens: int  # of one pass of one rank
    fill: int = 1  # batches are padded to a multiple of this number of tokens

    def plan(self, position: int, ranks: int) -> StepPlan:
        """Return the samples of the step, starting at a position."""
        return self.examples.plan(
            position,
            tokens=self.tokens,
            micro_tokens=self.micro_tokens,
            ranks=ranks,
            fill=self.fill,
        )


class LoadedStep(NamedTuple):
    """One rank's micro-batches of a step; inactive ones have no samples of this rank."""

    plan: StepPlan
    examples: list[Example]
    active: list[bool]

    @property
    def tokens(self) -> int:
        """The tokens of this rank's own samples."""
        return sum(e.tokens for e, own in zip(self.examples, self.active, strict=True) if own)


class Loader:
    """Iterate over the steps from a position on, for one of several ranks.

    If a step has fewer samples than ranks, a rank without samples gets the first sample (or pair)
    of the step, marked as inactive: all ranks must make the same number of passes.
    """

    def __init__(
        self,
        request: Callable[[int], StepRequest | None],
        *,
        step: int = 0,
        position: int = 0,
        rank: int = 0,
        ranks: int = 1,
        workers: int = 2,
        ahead: int = 4,
        pin: bool = False,
    ) -> None:
        self.request, self.step, self.position = request, step, position
        self.rank, self.ranks, self.pin = rank, ranks, pin
        self.ahead = ahead
        self.pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="examples")
        self.queue: deque[tuple[StepPlan, list[Future[Example]], list[bool]]] = deque()

    def next(self) -> LoadedStep | None:
        """Return the next step, or None at the end."""
        while len(self.queue) < self.ahead and self._order():
            pass
        if not self.queue:
            return None
        plan, futures, active = self.queue.popleft()
        return LoadedStep(plan, [future.result() for future in futures], active)

    def close(self) -> None:
        """Stop the workers."""
        self.pool.shutdown(wait=True, cancel_futures=True)

    def _order(self) -> bool:
        """Submit the next step to the workers; False if there is none."""
        request = self.request(self.step)
        if request is None:
            return False
        plan = request.plan(self.position, self.ranks)
        own = plan.micro_batches[self.rank]
        active = [len(samples) > 0 for samples in own]
        spare = plan.samples[: request.examples.source.group]
        futures = [
            self.pool.submit(self._make, request, samples if len(samples) else spare)
            for samples in own
        ]
        self.queue.append((plan, futures, active))
        self.step, self.position = self.step + 1, plan.end
        return True

    def _make(self, request: StepRequest, samples: Numbers) -> Example:
        example = request.examples.make(samples, request.fill)
        return example.pinned() if self.pin else example
